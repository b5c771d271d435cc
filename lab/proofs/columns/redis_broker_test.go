package columns_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/examples/redis/streams"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// redisBroker is Redis as the suite's target sees it: its host:port.
type redisBroker string

// pickyRedis is an unmarshaler that cannot read everything.
type pickyRedis struct {
	redisstream.DefaultMarshallerUnmarshaller
}

func (p pickyRedis) Unmarshal(values map[string]any) (*message.Message, error) {
	if values["payload"] == conformance.Unreadable {
		return nil, errors.New("no such schema")
	}
	return p.DefaultMarshallerUnmarshaller.Unmarshal(values)
}

func (b redisBroker) options() redis.Options { return redis.Options{Addr: string(b)} }

// quick are options with time-outs of seconds.
func quick(address string) redis.Options {
	return redis.Options{Addr: address, DialTimeout: time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: time.Second, MaxRetries: -1}
}

func (b redisBroker) publisher(t testing.TB, options redis.Options) *streams.Publisher {
	return testkit.Must(streams.NewPublisher(streams.Config{Options: options}, nil))
}

// redisIdle is short, so that rows need not wait for what a killed consumer had in hand.
const redisIdle = 3 * time.Second

func (b redisBroker) subscriber(t testing.TB, group string, maxIdle time.Duration, options redis.Options) *streams.Subscriber {
	t.Helper()
	sub, err := streams.NewSubscriber(streams.Config{Options: options, Group: group, MaxIdle: maxIdle, Unmarshaler: pickyRedis{}}, nil)
	testkit.NoError(t, err)
	return sub
}

// admin does something with a connection of its own, because the broker may have been restarted.
func (b redisBroker) admin(t testing.TB, do func(context.Context, redis.UniversalClient) error) {
	t.Helper()
	options := b.options()
	client := redis.NewClient(&options)
	testkit.NoError(t, errors.Join(do(context.Background(), client), client.Close()))
}

// createTopic has nothing to create: the first message makes a stream, and the first subscription. It removes the
// stream.
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

// backlog counts what waits for a group.
func (b redisBroker) backlog(t testing.TB, group string) func(context.Context, string) (int, error) {
	t.Helper()
	sub := b.subscriber(t, group, redisIdle, b.options())
	t.Cleanup(func() { _ = sub.Close() })
	return sub.Backlog
}

// send appends an entry as a client without Watermill would.
func (b redisBroker) send(t testing.TB, topic string, values map[string]any) {
	t.Helper()
	b.admin(t, func(ctx context.Context, client redis.UniversalClient) error {
		return client.XAdd(ctx, &redis.XAddArgs{Stream: topic, Values: values}).Err()
	})
}
