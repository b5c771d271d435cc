package wmsql_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// features are those with which watermill-sql tests itself.
var features = tests.Features{
	ConsumerGroups: true, ExactlyOnceDelivery: true, GuaranteedOrder: true, Persistent: true, ForceShort: true,
}

// Watermill's universal suite, and concurrent closes, which deliver at least once.
func TestUniversal(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		plain := func(*testing.T) (message.Publisher, message.Subscriber) { return b.pair("test") }
		group := func(_ *testing.T, group string) (message.Publisher, message.Subscriber) { return b.pair(group) }
		tests.TestPubSub(t, features, plain, group)
		atLeastOnce := features
		atLeastOnce.ExactlyOnceDelivery = false
		t.Run("concurrent close", func(t *testing.T) {
			t.Parallel()
			tests.TestConcurrentClose(t, tests.TestContext{TestID: tests.NewTestULID(), Features: atLeastOnce}, plain)
		})
	})
}

// pair makes what the suite wants: a publisher and a subscriber, which it closes itself.
func (b *bench) pair(group string) (message.Publisher, message.Subscriber) {
	return b.publisher(), b.subscriber(func(c *wmsql.SubscriberConfig) {
		c.ConsumerGroup, c.PollInterval = group, time.Millisecond
	})
}
