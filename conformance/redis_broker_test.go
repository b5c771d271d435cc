package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/poison"
)

// redisBroker is Redis as the suite's target sees it: its host:port.
type redisBroker string

// redisMarshaler writes and reads every message. Watermill's own refuses one key of metadata, and its unmarshaler's error ends
// the subscription, as well as each later one that claims the message.
type redisMarshaler struct {
	redisstream.DefaultMarshallerUnmarshaller
}

// reservedField holds the metadata that Watermill's marshaler refuses.
const reservedField = "metadata." + redisstream.UUIDHeaderKey

func (m redisMarshaler) Marshal(topic string, msg *message.Message) (map[string]any, error) {
	reserved, ok := msg.Metadata[redisstream.UUIDHeaderKey]
	if !ok {
		return m.DefaultMarshallerUnmarshaller.Marshal(topic, msg)
	}
	msg = msg.Copy() // not what others have
	delete(msg.Metadata, redisstream.UUIDHeaderKey)
	values, err := m.DefaultMarshallerUnmarshaller.Marshal(topic, msg)
	if err == nil {
		values[reservedField] = reserved
	}
	return values, err
}

func (m redisMarshaler) Unmarshal(values map[string]any) (*message.Message, error) {
	msg, err := m.read(values)
	if err != nil {
		id, _ := values[redisstream.UUIDHeaderKey].(string)
		payload, _ := values["payload"].(string)
		msg = message.NewMessage(id, []byte(payload))
	}
	if reserved, ok := values[reservedField].(string); ok {
		msg.Metadata.Set(redisstream.UUIDHeaderKey, reserved)
	}
	if err == nil && string(msg.Payload) == conformance.Unreadable {
		err = errors.New("no such schema")
	}
	if err != nil {
		poison.MarkUnreadable(msg, err)
	}
	return msg, nil
}

// read returns a panic as an error: in redisstream's goroutine it would end the process.
func (m redisMarshaler) read(values map[string]any) (msg *message.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("unmarshal: %v", p)
		}
	}()
	return m.DefaultMarshallerUnmarshaller.Unmarshal(values)
}

// client returns a new client, which a publisher or subscriber closes with itself.
func (b redisBroker) client() redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: string(b)})
}

func (b redisBroker) publisher(t testing.TB, client redis.UniversalClient) message.Publisher {
	t.Helper()
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client, Marshaller: redisMarshaler{}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pub
}

// subscriber has what a dead consumer left after redisIdle.
func (b redisBroker) subscriber(t testing.TB, group string, client redis.UniversalClient) message.Subscriber {
	t.Helper()
	return b.claiming(t, group, redisIdle, client)
}

const redisIdle = 3 * time.Second

// claiming is subscriber with another time.
func (b redisBroker) claiming(t testing.TB, group string, maxIdle time.Duration, client redis.UniversalClient) message.Subscriber {
	t.Helper()
	sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client, ConsumerGroup: group, Unmarshaller: redisMarshaler{},
		MaxIdleTime: maxIdle, ClaimInterval: maxIdle / 6, NackResendSleep: 100 * time.Millisecond,
		// Without this, a subscription that ended without a message takes the next one with it.
		DisableIndefiniteInitialBlock: true,
		// Without this, a subscription to a stream that was deleted stays, and gets nothing.
		ShouldStopOnReadErrors: func(err error) bool { return strings.HasPrefix(err.Error(), "NOGROUP") },
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// admin does something with a connection of its own, because the broker may have been restarted.
func (b redisBroker) admin(t testing.TB, do func(context.Context, redis.UniversalClient) error) {
	t.Helper()
	client := b.client()
	if err := errors.Join(do(context.Background(), client), client.Close()); err != nil {
		t.Fatal(err)
	}
}

// createTopic has nothing to create: the first message makes a stream, and the first subscription. It removes the stream.
func (b redisBroker) createTopic(t testing.TB, topic string) {
	t.Cleanup(func() { b.deleteTopic(t, topic) })
}

func (b redisBroker) deleteTopic(t testing.TB, topic string) {
	t.Helper()
	b.admin(t, func(ctx context.Context, client redis.UniversalClient) error { return client.Del(ctx, topic).Err() })
}

// readOnly makes a key of another type, which takes no message.
func (b redisBroker) readOnly(t testing.TB, topic string) (writable func()) {
	t.Helper()
	b.admin(t, func(ctx context.Context, client redis.UniversalClient) error {
		return client.Set(ctx, topic, "no stream", 0).Err()
	})
	b.createTopic(t, topic)
	return func() { b.deleteTopic(t, topic) }
}

// backlog counts what the group was not given, or has not acked. After a restart or a deletion Redis may not know the first.
func (b redisBroker) backlog(group string) func(context.Context, string) (int, error) {
	return func(ctx context.Context, topic string) (int, error) {
		client := b.client()
		defer func() { _ = client.Close() }()
		n, err := client.XLen(ctx, topic).Result()
		if err != nil || n == 0 {
			return 0, err
		}
		groups, err := client.XInfoGroups(ctx, topic).Result()
		if err != nil {
			return 0, err
		}
		for _, g := range groups {
			switch {
			case g.Name != group:
			case g.Lag >= 0:
				return int(g.Lag + g.Pending), nil
			default:
				rest, err := client.XRange(ctx, topic, "("+g.LastDeliveredID, "+").Result()
				return len(rest) + int(g.Pending), err
			}
		}
		return int(n), nil
	}
}

// send appends an entry as a client without Watermill would.
func (b redisBroker) send(t testing.TB, topic string, values map[string]any) {
	t.Helper()
	b.admin(t, func(ctx context.Context, client redis.UniversalClient) error {
		return client.XAdd(ctx, &redis.XAddArgs{Stream: topic, Values: values}).Err()
	})
}
