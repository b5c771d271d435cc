package wmkafka

import (
	"errors"
	"strconv"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
)

// ByCoordinates is the key of an idempotent receiver for producers that give messages no id:
// idempotency.ReceiverConfig.Key = wmkafka.ByCoordinates. The key is topic, partition, offset and timestamp of the
// record. All four come from the subscriber, and none from metadata, which a producer writes. A message that did not
// come from Kafka is invalid.
//
// It recognises a record that Kafka redelivers, and no other copy of the message. A message that a producer sends
// twice, or that is redriven or dead-lettered twice, has two keys. If its effect must not apply twice, give messages
// ids.
//
// The timestamp, in milliseconds, distinguishes the records of a topic from those of a deleted topic of the same name,
// which begin at offset 0 too. If a producer sets the same timestamp for the same offset, the receiver reports another
// payload under a known key, unless ReceiverConfig.AnyPayload is set.
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
			origin.Topic += "/" + stage.Topic
		}
	}
	stamp := "none"
	if at, ok := kafka.MessageTimestampFromCtx(ctx); ok && !at.IsZero() {
		stamp = strconv.FormatInt(at.UnixMilli(), 10)
	}
	return origin.Topic + "/" + origin.Partition + "/" + origin.Offset + "/" + stamp, nil
}
