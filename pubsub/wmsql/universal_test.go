package wmsql_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// features are those with which watermill-sql tests itself.
var features = tests.Features{ConsumerGroups: true, ExactlyOnceDelivery: true, GuaranteedOrder: true, Persistent: true, ForceShort: true}

// Watermill's universal suite, with the consumer group of every constructor, on each kind of database.
func TestUniversal(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		group := func(_ *testing.T, group string) (message.Publisher, message.Subscriber) { return b.pair(group) }
		tests.TestPubSub(t, features, func(*testing.T) (message.Publisher, message.Subscriber) { return b.pair("test") }, group)
	})
}

// What the suite skips for features like ours, and what watermill-sql's tests run beside it: small and large batches,
// the group without a name, and ids that are no UUIDs.
func TestUniversalBeside(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		batch := func(n int) tests.PubSubConstructor {
			return func(*testing.T) (message.Publisher, message.Subscriber) {
				return b.pair("", func(c *wmsql.SubscriberConfig) { c.Batch = n })
			}
		}
		atLeastOnce := features
		atLeastOnce.ExactlyOnceDelivery = false
		for name, run := range map[string]func(*testing.T, tests.TestContext){
			"publish subscribe":    func(t *testing.T, c tests.TestContext) { tests.TestPublishSubscribe(t, c, batch(1)) },
			"concurrent subscribe": func(t *testing.T, c tests.TestContext) { tests.TestConcurrentSubscribe(t, c, batch(5)) },
			"in order":             func(t *testing.T, c tests.TestContext) { tests.TestPublishSubscribeInOrder(t, c, batch(100)) },
			"concurrent close":     func(t *testing.T, c tests.TestContext) { tests.TestConcurrentClose(t, c, batch(10)) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t, tests.TestContext{TestID: tests.NewTestULID(), Features: atLeastOnce})
			})
		}
	})
}

// pair makes what the suite wants: a publisher and a subscriber, which it closes itself.
func (b *bench) pair(group string, change ...func(*wmsql.SubscriberConfig)) (message.Publisher, message.Subscriber) {
	config := func(c *wmsql.SubscriberConfig) { c.ConsumerGroup, c.PollInterval = group, time.Millisecond }
	return b.publisher(), b.subscriber(append(change, config)...)
}
