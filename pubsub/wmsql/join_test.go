package wmsql_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature I4, decision 8: only our subscriber can be joined; a nil one is an error at construction.
func TestJoin(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		testkit.Check(t, testkit.Err(wmsql.Join(t.Context(), nil, shop)) != nil, "a store of no subscriber is accepted")
		sub := b.subscriber()
		testkit.Says(t, testkit.Err(wmsql.Join(t.Context(), sub, "")), "Service")
		testkit.Check(t, b.join(sub) == b.join(sub),
			"two stores of one subscriber are not the same: a claim would not know that it is inside of itself")
	})
}

// A message of another source has a transaction of its own and the same keys.
func TestOtherSource(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		channel := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
		sub := b.subscriber()
		keys := b.join(sub)
		var runs deliveries
		var duplicates atomic.Int32
		received := func(c *spillway.Config) {
			c.Receiver = &idempotency.ReceiverConfig{
				AnyPayload: true, // a table may write JSON in a way of its own
				Hooks: idempotency.Hooks{OnDuplicate: func(context.Context,
					idempotency.Key) {
					duplicates.Add(1)
				}},
			}
		}
		handle := func(msg *message.Message) ([]*message.Message, error) {
			runs.add(msg.UUID)
			return nil, b.write(msg, "effect")
		}
		b.publish("both", "table")
		for _, id := range []string{"both", "memory"} {
			testkit.NoError(t, channel.Publish(b.topic, message.NewMessage(id, nil)))
		}
		stop := b.runFrom(sub, keys, handle, received)
		b.drained()
		stop()
		b.runFrom(channel, keys, handle, received)
		b.until("all are handled", func() bool { return len(b.effects()["memory"]) == 1 && duplicates.Load() == 1 })
		for _, id := range []string{"both", "table", "memory"} {
			testkit.Equal(t, "runs of "+id, runs.get()[id], 1)
		}
	})
}

// A store joined to a subscriber of another pool claims in its own database, not in the transaction.
func TestJoinOfAnotherPool(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		other := testkit.Must(wmsql.NewSubscriber(t.Context(), b.kind.Open(t, b.address), wmsql.SubscriberConfig{}))
		store := b.join(other)
		b.publish("a")
		var runs deliveries
		var seen atomic.Bool
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			if err := b.write(msg, "effect"); err != nil {
				return nil, err
			}
			if runs.add(msg.UUID) == 1 {
				return nil, errors.New("once more")
			}
			return nil, nil
		}, func(c *spillway.Config) {
			c.Idempotency = store
			c.Receiver = &idempotency.ReceiverConfig{Hooks: idempotency.Hooks{OnApplied: func(context.Context, idempotency.Key) {
				seen.Store(len(b.effects()["a"]) == 1) // before the ack
			}}}
		})
		b.drained()
		effects := b.effects()
		testkit.Check(t, len(effects["a"]) == 1 && runs.get()["a"] == 2 && seen.Load(),
			"effects %v, runs %v, committed by itself: %t", effects, runs.get(), seen.Load())
	})
}

// What a handler publishes with its context has a transaction of its own while the handler's claim is open.
func TestClaimInsideClaim(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		sub := b.subscriber()
		store := b.join(sub)
		b.publish("a")
		b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
			inner, err := store.Claim(msg.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "inner", ID: "x"}})
			if err != nil {
				return nil, err
			}
			if err := errors.Join(insert(inner.Tx(), "x", "effect"), inner.Commit(nil), inner.Release()); err != nil {
				return nil, err
			}
			testkit.Check(t, len(b.effects()["x"]) == 1, "it is in the transaction of the handler's message")
			return b.whole(msg)
		})
		b.until("it is handled", func() bool { return len(b.effects()["a"]) == 2 })
	})
}

// Decision 8: a duplicate waits for another consumer's transaction, and is absorbed, or applied where that is undone.
func TestJoinedDuplicateWaits(t *testing.T) {
	for want, fails := range map[int]bool{1: false, 2: true} {
		t.Run(fmt.Sprintf("fails %t", fails), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, b *bench) {
				holds, waits := make(chan struct{}), make(chan struct{})
				release := sync.OnceFunc(func() { close(waits) })
				defer release()
				var runs deliveries
				handle := func(msg *message.Message) ([]*message.Message, error) {
					if runs.add(msg.UUID) > 1 {
						return b.whole(msg)
					}
					out, err := b.whole(msg)
					close(holds)
					<-waits
					if fails {
						return nil, errors.Join(err, errors.New("failed"))
					}
					return out, err
				}
				other := b.beside()
				other.outs = b.outs
				b.publish("same")
				other.publish("same") // before there is a transaction that delays it
				b.run(b.subscriber(), handle, once)
				<-holds
				sub := b.subscriber()
				other.run(sub, handle, once)
				b.until("the duplicate waits", func() bool {
					return b.waits(`%spillway_keys%`,
						`INSERT INTO spillway_keys%`)
				})
				release()
				b.drained()
				other.drained()
				testkit.Equal(t, "effects", len(b.effects()["same"]), 2)
				testkit.Equal(t, "runs", runs.get()["same"], want)
				// The duplicate replays what was recorded.
				testkit.Equal(t, "outputs and letters", b.outputs()["same"]+len(b.letters()["same"]), 2)
			})
		})
	}
}

// Decision 8: a key committed while its message waits in a batch is found, and the message absorbed.
func TestKeyCommittedMeanwhile(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("first", "second", "third")
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "first" {
				b.exec(`INSERT INTO spillway_keys (consumer, id, applied_at) VALUES ('shop/billing', 'second', 0)`)
			}
			return b.whole(msg)
		})
		b.drained()
		effects, letters := b.effects(), b.letters()
		testkit.Check(t, len(effects) == 2 && effects["second"] == nil && len(letters) == 0, "effects %v, letters %v",
			effects, letters)
	})
}
