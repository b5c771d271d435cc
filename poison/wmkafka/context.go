package wmkafka

import (
	"context"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

// recordContext is the context of a record's message: it ends with the group session, and answers what watermill-kafka's
// getters ask for.
type recordContext struct {
	context.Context // of the session
	record          *sarama.ConsumerMessage
	group           string
}

type recordContextKey struct{}

// Value passes on what it does not know, so that context.WithCancel finds the session's context and starts no goroutine.
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
	}
	return c.Context.Value(key)
}

// The keys under which watermill-kafka looks for what it knows of a record. They are its own secret, but its getters
// tell them to the context that they ask.
var (
	partitionKey = keyOf(func(ctx context.Context) { kafka.MessagePartitionFromCtx(ctx) })
	offsetKey    = keyOf(func(ctx context.Context) { kafka.MessagePartitionOffsetFromCtx(ctx) })
	timestampKey = keyOf(func(ctx context.Context) { kafka.MessageTimestampFromCtx(ctx) })
	keyKey       = keyOf(func(ctx context.Context) { kafka.MessageKeyFromCtx(ctx) })
)

func keyOf(get func(context.Context)) any {
	listening := &listener{Context: context.Background()}
	get(listening)
	return listening.key
}

type listener struct {
	context.Context
	key any
}

func (l *listener) Value(key any) any {
	l.key = key
	return nil
}
