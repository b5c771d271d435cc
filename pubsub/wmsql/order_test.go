package wmsql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit/sqlmarks"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// keyed takes the first letter of the id as the key.
func keyed(c *wmsql.SubscriberConfig) {
	c.Key = func(msg *message.Message) string { return strings.Trim(msg.UUID[:1], "0") }
}

func ordered(delays ...time.Duration) func(*spillway.Config) {
	return func(c *spillway.Config) {
		c.Ordered, c.Retry.Attempts = &spillway.OrderedConfig{Delays: delays}, 1
	}
}

// parked counts the rows that others see.
func (b *bench) parked() int { b.Helper(); return b.ask(`SELECT count(*) FROM spillway_parked`) }

// inOrder waits until all are settled and nothing is parked, and checks each key.
func (b *bench) inOrder(published []string, aside ...string) {
	b.Helper()
	b.drained()
	b.until("nothing is parked", func() bool { return b.parked() == 0 })
	b.account(published, aside...)
	want, got := map[byte][]string{}, map[byte][]string{}
	for _, id := range published {
		if !slices.Contains(aside, id) {
			want[id[0]] = append(want[id[0]], id)
		}
	}
	b.each(b.outs, func(msg *message.Message) { // in the order of the effects
		got[msg.Payload[0]] = append(got[msg.Payload[0]], string(msg.Payload))
	})
	for key := range want {
		testkit.Check(b, slices.Equal(want[key], got[key]), "key %c: %v, want %v", key, got, want)
	}
}

var errDown = errors.New("connection refused")

// Feature R13: a failed message and the later ones of its key wait, other keys go on. What comes again is absorbed.
func TestOrderedParks(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := []string{"a1", "a2", "b1", "a3", "0x", "c1", "c2"}
		b.publish(ids...)
		var seen deliveries
		b.run(b.subscriber(keyed), func(msg *message.Message) ([]*message.Message, error) {
			switch times := seen.add(msg.UUID); {
			case msg.UUID == "c1", (msg.UUID == "a1" || msg.UUID == "0x") && times < 3:
				return nil, errors.Join(b.write(msg, "half"), errDown)
			}
			return b.whole(msg)
		}, ordered(time.Second, time.Millisecond))
		b.inOrder(ids, "c1")
		testkit.Check(t, strings.HasPrefix(seen.String(), "a1 b1 "), "handled %s", seen.String())
		b.publish("a1", "a4") // again: it is absorbed
		b.drained()
		b.until("nothing is parked", func() bool { return b.parked() == 0 })
		testkit.Equal(t, "effects of a1", len(b.effects()["a1"]), 2)
	})
}

// Feature R13: a message is parked in the transaction of its batch, and its row goes when the batch is rolled back.
func TestOrderedRollback(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := []string{"a1", "a2", "b1", "a3"}
		b.publish(ids...)
		var seen deliveries
		b.run(b.subscriber(keyed, oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			times := seen.add(msg.UUID)
			switch {
			case msg.UUID == "a1" && times <= 2:
				return nil, errDown
			case msg.UUID == "b1" && times == 1:
				testkit.Equal(t, "parked messages that others see before the batch commits", b.parked(), 0)
				return nil, b.cutOff(msg)
			case msg.UUID == "a3" && times == 1: // parked and deleted rows, too
				return nil, b.cutOff(msg)
			}
			return b.whole(msg)
		}, ordered(50*time.Millisecond))
		b.inOrder(ids)
		testkit.Check(t, strings.HasPrefix(seen.String(), "a1 b1 a1 "), "handled %s", seen.String())
	})
}

// Feature R13, promise P1: while the numbers of parked rows are behind the rows, as after a restore of data alone, what
// must be parked is held, and the log says the remedy. Nothing is acked that is in no table.
func TestOrderedHoldsWhileNumbersAreTaken(t *testing.T) {
	b := on(t, databases.Postgres)
	log, ids := &testkit.Log{}, []string{"a1", "a2", "a3", "b1"}
	var healed atomic.Bool
	b.publish(ids[0])
	delays := slices.Repeat([]time.Duration{time.Second}, 100)
	b.run(b.subscriber(keyed), func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID == "a1" && !healed.Load() {
			return nil, errDown
		}
		return b.whole(msg)
	}, ordered(delays...), func(c *spillway.Config) { c.Logger = log })
	b.until("a1 is parked", func() bool { return b.parked() == 1 })
	databases.Exec(t, b.db, `INSERT INTO spillway_parked (seq, service, members, topic, part, source, lane, position,
fingerprint, redrives, due_at, sent_at, consumer, key_id, id, metadata, bytes)
SELECT seq + n, 'other', '', '', 0, 'other', '', n, '', 0, 0, 0, '', '', '', '', 0
FROM spillway_parked, generate_series(1, 10000) n`)
	b.publish(ids[1:]...)
	const remedy = `SELECT setval(pg_get_serial_sequence('spillway_parked', 'seq'), ` +
		`(SELECT MAX(seq) FROM spillway_parked))`
	b.until("the log says the remedy", func() bool {
		return slices.ContainsFunc(log.Errors(), func(l testkit.Line) bool {
			return l.Err != nil && strings.Contains(l.Err.Error(), remedy)
		})
	})
	testkit.Equal(t, "letters", len(b.letters()), 0)
	databases.Exec(t, b.db, remedy, `DELETE FROM spillway_parked WHERE service = 'other'`)
	healed.Store(true)
	b.inOrder(ids)
}

// Feature R13, D10: a message that is held because it ended processes is handled when a person releases it: its crashes
// are forgotten.
func TestOrderedReleaseForgetsCrashes(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		store := testkit.Must(sqlmarks.NewStore(t.Context(), b.db, "shop"))
		for n := range 5 {
			databases.Exec(t, b.db, fmt.Sprintf(`INSERT INTO spillway_processes (service, id, node, beat_ms, started_at, beats, lost_at)
VALUES ('shop', 'ended%d', 'node', 2000, 0, 1, 2000000000000)`, n), fmt.Sprintf(`INSERT INTO spillway_deliveries
(service, consumer, id, redrives, delivery, process, marked_at) VALUES ('shop', 'billing', 'a1', 0, %d, 'ended%d', 2000000000000)`,
				n+1, n))
		}
		ids := []string{"a1", "a2", "b1"}
		b.publish(ids...)
		b.run(b.subscriber(keyed), b.whole, ordered(time.Millisecond), func(c *spillway.Config) {
			c.Ordered.Hold, c.CrashLimit = true, &crashlimit.Config{Store: store}
		})
		b.until("a1 is held", func() bool { return b.ask(`SELECT count(*) FROM spillway_parked WHERE held <> 0`) == 1 })
		first := b.ask(`SELECT MIN(seq) FROM spillway_parked`)
		testkit.Equal(t, "effects", len(b.effects()["a1"]), 0)
		_, err := parked.Decide(t.Context(), b.db, b.service(), int64(first), parked.Deciding{What: parked.Release, By: "ann",
			Record: func(*sql.Tx, string, parked.Parked, int) error { return nil }})
		testkit.NoError(t, err)
		b.inOrder(ids)
	})
}

func (b *bench) service() (service string) {
	b.Helper()
	testkit.NoError(b, b.db.QueryRow(`SELECT service FROM spillway_parked LIMIT 1`).Scan(&service))
	return service
}

// Feature R13: an instance that waited for the position sees what another one has parked, and drains it.
func TestOrderedTwoInstances(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		began, fail := make(chan struct{}), make(chan struct{})
		handle := func(msg *message.Message) ([]*message.Message, error) {
			switch times := seen.add(msg.UUID); {
			case msg.UUID == "a1" && times == 1:
				close(began)
				<-fail
				return nil, errDown
			case msg.UUID == "0" && times == 1: // it ends its batch
				time.Sleep(20 * time.Millisecond)
			}
			return b.whole(msg)
		}
		b.publish("0", "a1")
		stop := b.run(b.subscriber(keyed), handle, ordered(200*time.Millisecond))
		<-began
		b.run(b.subscriber(keyed), handle, ordered(200*time.Millisecond))
		b.publish("a2", "b1")
		b.until("the other one waits", func() bool { return b.waits(`%consumer_group%`, `%FOR UPDATE`) })
		close(fail)
		// it is parked for 200 ms: a look that comes later finds its effect
		b.until("a1 is parked", func() bool { return b.parked() > 0 || len(b.effects()["a1"]) > 0 })
		stop()
		b.inOrder([]string{"0", "a1", "a2", "b1"})
	})
}

// Feature R13: a parked message that always interrupts its transaction is set aside, and what is behind it goes on.
func TestOrderedHeadInterrupts(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := []string{"a1", "a2", "b1"}
		b.publish(ids...)
		var seen deliveries
		twice := func(c *wmsql.SubscriberConfig) { *wmsql.MaxDeliveries(c) = 2 }
		b.run(b.subscriber(keyed, twice), func(msg *message.Message) ([]*message.Message, error) {
			times := seen.add(msg.UUID)
			if msg.UUID != "a1" {
				return b.whole(msg)
			}
			if times == 1 {
				return nil, errDown
			}
			ctx, cancel := context.WithTimeout(msg.Context(), 50*time.Millisecond)
			defer cancel()
			_, slow := txOf(ctx).ExecContext(ctx, b.sleep("1"))
			return nil, slow
		}, ordered(time.Millisecond))
		b.inOrder(ids, "a1")
		testkit.Equal(t, "set aside for", b.aside("a1"), setAside)
	})
}

// Feature R13: a handler that acks its message itself gets a letter, and the next message of the key waits for it.
func TestOrderedEarlyAck(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a1", "a2")
		b.run(b.subscriber(keyed), func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "a1" {
				msg.Ack()
				time.Sleep(30 * time.Millisecond)
			}
			return b.whole(msg)
		}, ordered(time.Millisecond))
		b.inOrder([]string{"a1", "a2"}, "a1")
	})
}

// limited bounds what is parked of a key.
type limited struct {
	*wmsql.Subscriber
	messages int
}

func (l limited) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sequence.Take(ctx).Limits = sequence.Limits{Messages: l.messages, All: 100, MessageBytes: 1 << 20, AllBytes: 1 << 20}
	return l.Subscriber.Subscribe(ctx, topic)
}

// Feature R13: when as many messages of a key are parked as may be, the group waits and drains, and overtakes nothing.
func TestOrderedFull(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := []string{"a1", "a2", "a3", "a4", "b1"}
		b.publish(ids...)
		var seen deliveries
		most, log := 0, &testkit.Log{}
		sub := b.subscriber(keyed)
		b.runFrom(limited{sub, 2}, b.join(sub), func(msg *message.Message) ([]*message.Message, error) {
			if times := seen.add(msg.UUID); msg.UUID == "a1" && times < 3 {
				return nil, errDown
			}
			most = max(most, b.parked())
			return b.whole(msg)
		}, ordered(200*time.Millisecond), func(c *spillway.Config) {
			c.Ordered.Delays = append(c.Ordered.Delays, time.Millisecond)
			c.Logger = log
		})
		b.inOrder(ids)
		got := seen.String()
		testkit.Check(t, most <= 2 && strings.Index(got, "b1") > strings.LastIndex(got, "a1"),
			"%d were parked; handled %s", most, got)
		testkit.Check(t, len(log.Lines(watermill.ErrorLogLevel, "As many messages are parked as may be")) != 0,
			"nothing is said of it")
	})
}

// Feature R13: with Hold a key stands until a person decides, over a restart, and other keys go on.
func TestOrderedHold(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		handle := func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "a1" {
				return nil, classify.Permanent(errDown)
			}
			return b.whole(msg)
		}
		hold := func(c *spillway.Config) { c.Ordered.Hold = true }
		b.publish("a1", "a2", "b1")
		stop := b.run(b.subscriber(keyed), handle, ordered(time.Millisecond), hold)
		b.drained()
		stop()
		effects, letters := b.effects(), b.letters()
		testkit.Check(t, len(effects) == 1 && len(effects["b1"]) == 2 && b.parked() == 2 && len(letters) == 0,
			"effects %v, letters %v", effects, letters)
		first := int64(b.ask(`SELECT MIN(seq) FROM spillway_parked`))
		testkit.Must(parked.Decide(t.Context(), b.db, shop, first,
			parked.Deciding{What: parked.Skip, By: "ann", Why: "a typo",
				Record: func(*sql.Tx, string, parked.Parked, int) error { return nil }}))
		b.run(b.subscriber(keyed), handle, ordered(time.Millisecond), hold)
		b.inOrder([]string{"a1", "a2", "b1"}, "a1")
	})
}

// Bad input: a key function that panics stops the topic until it returns, behind what is before it.
func TestOrderedKeyPanics(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		log := &testkit.Log{}
		repaired := make(chan struct{})
		b.publish("a1", "b1", "a2")
		b.run(b.subscriber(func(c *wmsql.SubscriberConfig) {
			c.Logger = log
			c.Key = func(msg *message.Message) string {
				select {
				case <-repaired:
				default:
					if msg.UUID == "b1" {
						panic("no key")
					}
				}
				return msg.UUID[:1]
			}
		}), b.whole, ordered(time.Millisecond))
		b.until("the log says so", func() bool {
			return strings.Contains(fmt.Sprint(log.Errors()),
				`SubscriberConfig.Key panicked with no key for message "b1"`)
		})
		b.until("what is before it is handled", func() bool { return len(b.effects()["a1"]) == 2 })
		testkit.Equal(t, "handled", len(b.effects()), 1)
		close(repaired)
		b.inOrder([]string{"a1", "b1", "a2"})
	})
}

// Bad input: what cannot keep an order on tables is refused, with the field and what to set.
func TestOrderedRefuses(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		own, foreign := b.join(b.subscriber()), b.over(b.kind.Open(t, b.address))
		for says, c := range map[string]struct {
			sub  message.Subscriber
			keys idempotency.Store
		}{
			"SubscriberConfig.Key": {b.subscriber(), own},
			"Config.Idempotency of wmsql.Join": {b.subscriber(keyed),
				testkit.Must(idempotency.NewStore(t.Context(), b.db, shop))},
			"of wmsql.Join on the *sql.DB of this subscriber": {b.subscriber(keyed),
				foreign.join(foreign.subscriber())},
			"does not deliver the messages of a key one at a time": {b.stockSubscriber(wsql.SubscriberConfig{}), own},
		} {
			config := spillway.Config{Publisher: b.pub, Idempotency: c.keys, Logger: watermill.NopLogger{}}
			ordered()(&config)
			channel := testkit.Must(spillway.New(t.Context(), config))
			router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
			channel.Attach(router)
			router.AddConsumerHandler("billing", b.topic, c.sub, func(*message.Message) error { return nil })
			testkit.Says(t, router.Run(t.Context()), says)
		}
	})
}
