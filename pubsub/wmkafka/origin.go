package wmkafka

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/poison"
)

// Origin returns the origin of a message on Kafka: topic, partition, offset, timestamp, key, consumer group and id. Use
// it as poison.QueueConfig.Origin. For a message of watermill-kafka's own subscriber the consumer group is empty. A
// message that did not come from Kafka has only its id and the topic of its handler.
func Origin(msg *message.Message) poison.Origin {
	if msg == nil {
		return poison.Origin{}
	}
	ctx := msg.Context()
	origin := poison.Origin{MessageID: msg.UUID, Topic: message.SubscribeTopicFromCtx(ctx)}
	if partition, ok := kafka.MessagePartitionFromCtx(ctx); ok {
		origin.Partition = strconv.FormatInt(int64(partition), 10)
	}
	if offset, ok := kafka.MessagePartitionOffsetFromCtx(ctx); ok {
		origin.Offset = strconv.FormatInt(offset, 10)
	}
	origin.Timestamp, _ = kafka.MessageTimestampFromCtx(ctx)
	origin.Key, _ = kafka.MessageKeyFromCtx(ctx)
	if ours, ok := ctx.Value(recordContextKey{}).(*recordContext); ok {
		origin.Topic = ours.record.Topic
		origin.ConsumerGroup = ours.group
	}
	return origin
}

// tellKey writes the key of a letter of another writer into metadata, where poison.Decode looks for it: the records of
// such letters have the key of the original. A message that is in its origin topic again is no letter any more.
func tellKey(msg *message.Message, record *sarama.ConsumerMessage) {
	const key, binary = poison.KeyOriginalKey, poison.KeyOriginalKey + poison.Base64Suffix
	if len(record.Key) == 0 || beyondMetadata(record.Key) || !poison.Inside().IsLetter(msg) ||
		has(msg, poison.KeyFailureClass) || has(msg, key) || has(msg, binary) ||
		poison.Read(msg).Origin.Topic == record.Topic {
		return
	}
	if text := string(record.Key); utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 {
		msg.Metadata[key] = text
	} else {
		msg.Metadata[binary] = base64.StdEncoding.EncodeToString(record.Key)
	}
}

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
