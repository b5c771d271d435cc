package wmkafka

import (
	"errors"
	"strconv"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
)

// ByCoordinates takes topic, partition, offset and timestamp of the record as the key of an idempotent receiver, for
// producers that give messages no id: idempotency.ReceiverConfig.Key = wmkafka.ByCoordinates. All four come from the
// subscriber, and none from the message's metadata, which a producer writes. A message that did not come from Kafka is
// invalid.
//
// It recognises a record that Kafka delivers again, and no other copy of the message. What a producer sends twice has two
// keys, and so has a message that was redriven, or set aside, twice: give messages ids where that must not apply twice.
//
// The timestamp, in milliseconds, tells the records of a topic from those of one of the same name that was deleted before:
// both begin at offset 0. It cannot where producers set timestamps of their own, and the same one for the same offset; then
// the receiver reports another payload under a known key, unless ReceiverConfig.AnyPayload is set.
func ByCoordinates(msg *message.Message) (string, error) {
	origin := Origin(msg)
	if origin.Topic == "" || origin.Partition == "" || origin.Offset == "" {
		const text = "the message has no partition and offset to take as its key: it did not come from Kafka"
		return "", classify.Invalid(errors.New(text), classify.Description(text))
	}
	ctx := msg.Context()
	if _, ours := ctx.Value(recordContextKey{}).(*recordContext); !ours {
		// Of watermill-kafka's subscriber the topic is the handler's, also where the record stood in a stage's topic.
		if stage := chain.ReentryOf(ctx); stage != nil {
			origin.Topic += "/" + stage.As
		}
	}
	stamp := "none"
	if at, ok := kafka.MessageTimestampFromCtx(ctx); ok && !at.IsZero() {
		stamp = strconv.FormatInt(at.UnixMilli(), 10)
	}
	return origin.Topic + "/" + origin.Partition + "/" + origin.Offset + "/" + stamp, nil
}
