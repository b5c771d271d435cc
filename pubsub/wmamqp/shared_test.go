package wmamqp_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"

	"github.com/watermill-spillway/spillway/internal/intake"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Feature R9: a subscription on a shared connection ends when the owner closes the connection, although the subscription waited at its valve
// then. It does not ask for a channel for ever.
func TestSharedConnectionClosedAtShutValve(t *testing.T) {
	t.Parallel()
	if unraced(t) { // watermill-amqp closes and is asked whether it is connected
		return
	}
	b := newBroker(t)
	topic := b.queue()
	b.numbered(topic, 3)
	conn, err := amqp.NewConnection(amqp.ConnectionConfig{AmqpURI: b.uri}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	config := wmamqp.SubscriberConfig{}
	prefetch(3)(&config)
	sub, err := wmamqp.NewSubscriberWithConnection(conn, config)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := sub.Subscribe(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	msg, reopen := b.next(messages), make(chan struct{})
	intake.Of(msg.Context()).Shut(reopen)
	msg.Nack()
	b.unfetched(topic, 3)
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	close(reopen)
	soon(t, "the end of the subscription", func() {
		for range messages {
			t.Error("a message came")
		}
	})
	b.closed("the subscriber", sub.Close())
}
