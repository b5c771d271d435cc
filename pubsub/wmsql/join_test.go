package wmsql_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature I4, decision 8: only our subscriber can be joined, which its type ensures; a nil one is an error at
// construction.
func TestJoin(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if _, err := wmsql.Join(t.Context(), nil, shop); err == nil {
			t.Error("a store of no subscriber is accepted")
		}
		sub := b.subscriber()
		if _, err := wmsql.Join(t.Context(), sub, ""); err == nil || !strings.Contains(err.Error(), "Service") {
			t.Errorf("a store of no service is accepted: %v", err)
		}
		if first, second := b.join(sub), b.join(sub); first != second {
			t.Error("two stores of one subscriber are not the same: a claim would not know that it is inside of itself")
		}
	})
}

// A message from another source on the same router has a transaction of its own and the same keys: what came one way is
// known when it comes the other.
func TestOtherSource(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		channel := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
		sub := b.subscriber()
		var runs deliveries
		var duplicates atomic.Int32
		dlc, err := spillway.New(t.Context(), spillway.Config{Publisher: b.pub, Idempotency: b.join(sub), Receiver: &idempotency.ReceiverConfig{
			AnyPayload: true, // a table may write JSON in a way of its own
			Hooks:      idempotency.Hooks{OnDuplicate: func(context.Context, idempotency.Key) { duplicates.Add(1) }},
		}})
		if err != nil {
			t.Fatal(err)
		}
		handle := dlc.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			runs.add(msg.UUID)
			return nil, b.write(msg, "effect")
		})
		b.publish("both", "table")
		for _, id := range []string{"both", "memory"} {
			if err := channel.Publish(b.topic, message.NewMessage(id, nil)); err != nil {
				t.Fatal(err)
			}
		}
		router, err := message.NewRouter(message.RouterConfig{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		router.AddConsumerHandler("billing", b.topic, sub, func(msg *message.Message) error { _, err := handle(msg); return err })
		done := make(chan error, 1)
		go func() { done <- router.Run(t.Context()) }()
		b.drained()
		if err := errors.Join(router.Close(), <-done); err != nil {
			t.Error(err)
		}
		if router, err = message.NewRouter(message.RouterConfig{}, nil); err != nil {
			t.Fatal(err)
		}
		router.AddConsumerHandler("billing", b.topic, channel, func(msg *message.Message) error { _, err := handle(msg); return err })
		go func() { done <- router.Run(t.Context()) }()
		b.until("all are handled", func() bool { return len(b.effects()["memory"]) == 1 && duplicates.Load() == 1 })
		if err := errors.Join(router.Close(), <-done); err != nil {
			t.Error(err)
		}
		if got := runs.get(); got["both"] != 1 || got["table"] != 1 || got["memory"] != 1 {
			t.Errorf("%v", got)
		}
	})
}

// A store joined to a subscriber of another pool claims in its own database, not in the transaction.
func TestJoinOfAnotherPool(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		other, err := wmsql.NewSubscriber(t.Context(), b.open(t), wmsql.SubscriberConfig{})
		if err != nil {
			t.Fatal(err)
		}
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
		if effects := b.effects(); len(effects["a"]) != 1 || runs.get()["a"] != 2 || !seen.Load() {
			t.Errorf("effects %v, runs %v, committed by itself: %t", effects, runs.get(), seen.Load())
		}
	})
}

// A message that is published from within a handler, and takes its context along, has a transaction of its own while
// the claim of the handler is open: it may not be done when the handler's message commits.
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
			if len(b.effects()["x"]) != 1 {
				t.Error("it is in the transaction of the handler's message")
			}
			return b.whole(msg)
		})
		b.until("it is handled", func() bool { return len(b.effects()["a"]) == 2 })
	})
}

// Decision 8: a duplicate waits for the transaction of another consumer, and is absorbed with the outputs that were
// recorded there, or applied where that is undone.
func TestJoinedDuplicateWaits(t *testing.T) {
	for name, fails := range map[string]bool{"commits": false, "is undone": true} {
		t.Run(name, func(t *testing.T) {
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
				b.until("the duplicate waits", b.waits)
				release()
				b.drained()
				other.drained()
				want := 1
				if fails {
					want = 2
				}
				if effects := b.effects(); len(effects["same"]) != 2 || runs.get()["same"] != want {
					t.Errorf("effects %v, runs %v", effects, runs.get())
				}
				if outs, letters := b.outputs()["same"], len(b.letters()["same"]); outs+letters != 2 {
					t.Errorf("%d outputs, %d letters", outs, letters) // the duplicate replays what was recorded
				}
			})
		})
	}
}

// waits reports whether any connection of the test's database waits for another's lock.
func (b *bench) waits() bool {
	b.Helper()
	var n int
	err := b.db.QueryRow(b.sql(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%spillway_keys%' AND datname = current_database()`,
		`SELECT count(*) FROM information_schema.processlist WHERE db = database() AND info LIKE 'INSERT INTO spillway_keys%' AND time_ms > 50`)).Scan(&n)
	if err != nil {
		b.Fatal(err)
	}
	return n > 0
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
		if effects, letters := b.effects(), b.letters(); len(effects) != 2 || effects["second"] != nil || len(letters) != 0 {
			t.Errorf("effects %v, letters %v", effects, letters)
		}
	})
}
