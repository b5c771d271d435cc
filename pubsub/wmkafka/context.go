package wmkafka

import (
	"context"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/watermill-spillway/spillway/internal/foreign"
	"github.com/watermill-spillway/spillway/internal/placing"
)

// recordContext is the context of a record's message: it ends with the group session, and answers what
// watermill-kafka's getters ask for.
type recordContext struct {
	context.Context // of the session
	record          *sarama.ConsumerMessage
	group           string
	delivery        *delivery // nil if the record is only read
}

type recordContextKey struct{}

// Value passes on what it does not know, so that context.WithCancel finds the session's context and starts no
// goroutine.
func (c *recordContext) Value(key any) any {
	switch key {
	case partitionKey:
		return c.record.Partition
	case offsetKey:
		return c.record.Offset
	case timestampKey:
		return c.record.Timestamp
	case keyKey:
		return c.record.Key
	case recordContextKey{}:
		return c
	case placing.Key{}:
		if c.delivery == nil {
			return nil
		}
		return c.delivery
	}
	return c.Context.Value(key)
}

// The keys under which watermill-kafka looks for what it knows of a record.
var (
	partitionKey = foreign.KeyOf("kafka.MessagePartitionFromCtx", func(c context.Context) { kafka.MessagePartitionFromCtx(c) })
	offsetKey    = foreign.KeyOf("kafka.MessagePartitionOffsetFromCtx", func(c context.Context) { kafka.MessagePartitionOffsetFromCtx(c) })
	timestampKey = foreign.KeyOf("kafka.MessageTimestampFromCtx", func(c context.Context) { kafka.MessageTimestampFromCtx(c) })
	keyKey       = foreign.KeyOf("kafka.MessageKeyFromCtx", func(c context.Context) { kafka.MessageKeyFromCtx(c) })
)
