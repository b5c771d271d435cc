package wmkafka

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/settings"
)

// Feature R15: Key takes the place of the record's key. While it panics the partition waits.
func TestKeyOfAMessage(t *testing.T) {
	t.Parallel()
	c, log := newCluster(t), &testkit.Log{}
	var panics atomic.Bool
	panics.Store(true)
	sub := c.subscriber(SubscriberConfig{InFlight: 4, Shared: settings.Shared{Logger: log}, Key: func(msg *message.Message) string {
		if panics.Load() {
			panic("no such field")
		}
		return "one"
	}})
	messages := c.subscribe(sub)
	const n = 6
	c.produce(keyed(n, n)...) // of as many record keys
	c.eventually("the panic is in the log", func() bool { return len(log.Lines(watermill.ErrorLogLevel, "Key panicked")) > 0 })
	panics.Store(false)
	for i := range n {
		msg := c.next(messages)
		testkit.Check(t, number(msg.UUID) == i, "message %d is %s", i, msg.UUID)
		c.none(messages, 20*time.Millisecond) // it would come beside the first
		msg.Ack()
	}
	if _, err := NewSubscriber(c.brokers, "billing", SubscriberConfig{Key: func(*message.Message) string { return "" }}); err == nil {
		t.Error("Key with InFlight 1")
	}
}
