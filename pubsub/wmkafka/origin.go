package wmkafka

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

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
