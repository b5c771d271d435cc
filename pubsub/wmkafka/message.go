package wmkafka

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/poison"
)

// read unmarshals a record and never fails: of what u cannot read it makes a message that a poison.Queue sets aside,
// with the record's value as the payload and its headers as metadata.
func read(u kafka.Unmarshaler, record *sarama.ConsumerMessage) *message.Message {
	clip(record)
	var msg *message.Message
	err := safecall.Call("unmarshaler", func() (err error) {
		msg, err = u.Unmarshal(record)
		return err
	})
	if err == nil && msg == nil {
		err = errors.New("the unmarshaler returned neither a message nor an error")
	}
	if err != nil {
		msg = plainMessage(record)
		carry(msg, record, true)
		poison.MarkUnreadable(msg, err)
	}
	if msg.Acked() == nil { // not made by NewMessage: an ack of it would not be seen
		msg = msg.Copy()
	}
	return msg
}

// clip takes away the room behind a record's bytes: it is where the next records are, and a handler that appends to its
// payload would write into them.
func clip(record *sarama.ConsumerMessage) {
	record.Key = slices.Clip(record.Key)
	record.Value = slices.Clip(record.Value)
}

// recordContext is the context of a record's message: it ends with the group session, and answers what
// watermill-kafka's getters ask for.
type recordContext struct {
	context.Context // of the session
	record          *sarama.ConsumerMessage
	group           string
	delivery        placing.Delivery // nil if the record is only read
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
	partitionKey = chain.KeyOf("kafka.MessagePartitionFromCtx", func(c context.Context) {
		kafka.MessagePartitionFromCtx(c)
	})
	offsetKey = chain.KeyOf("kafka.MessagePartitionOffsetFromCtx", func(c context.Context) {
		kafka.MessagePartitionOffsetFromCtx(c)
	})
	timestampKey = chain.KeyOf("kafka.MessageTimestampFromCtx", func(c context.Context) {
		kafka.MessageTimestampFromCtx(c)
	})
	keyKey = chain.KeyOf("kafka.MessageKeyFromCtx", func(c context.Context) { kafka.MessageKeyFromCtx(c) })
)

// attempt is the context of a message in one delivery. It ends with the group session, and when the message is settled.
// Few handlers wait for its end or derive a context from it, so what that needs is made when it is asked for.
type attempt struct {
	of *recordContext

	mu    sync.Mutex
	over  bool
	ended context.Context // ends with attempt; nil until it is asked for
	end   context.CancelFunc
}

var _ context.Context = (*attempt)(nil)

func (a *attempt) Deadline() (time.Time, bool) { return a.of.Deadline() }

func (a *attempt) Done() <-chan struct{} { return a.endable().Done() }

func (a *attempt) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended != nil:
		return a.ended.Err()
	case a.over:
		return context.Canceled
	}
	return a.of.Err()
}

// Value answers what package context asks of a parent with the context that ends with attempt: a context that is
// derived from attempt starts no goroutine, and context.Cause returns what it returns of any cancelled context. Its key
// is a *int.
func (a *attempt) Value(key any) any {
	if _, ok := key.(*int); ok {
		return a.endable().Value(key)
	}
	return a.of.Value(key)
}

func (a *attempt) endable() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended == nil {
		a.ended, a.end = context.WithCancel(a.of)
		if a.over {
			a.end()
		}
	}
	return a.ended
}

// cancel ends the attempt.
func (a *attempt) cancel() {
	a.mu.Lock()
	end := a.end
	a.over = true
	a.mu.Unlock()
	if end != nil {
		end()
	}
}

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
	if len(record.Key) == 0 || beyondMetadata(record.Key) || !inside.Poison.IsLetter(msg) ||
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
