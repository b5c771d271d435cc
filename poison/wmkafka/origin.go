package wmkafka

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// Origin tells where Kafka had a message: topic, partition, offset, timestamp, key, consumer group, id. It is what
// poison.QueueConfig.Origin wants. Of a message of watermill-kafka's own subscriber the consumer group is not known, and
// of one that did not come from Kafka only its id and the topic of its handler.
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
