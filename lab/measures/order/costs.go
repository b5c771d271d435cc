package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// costsOf prints what one look-up, one parking and one drain cost while so many messages are parked: each of a key of
// its own, and all of one key.
func (b *bench) costsOf() error {
	for _, n := range b.stocks {
		for _, keys := range []int{n, 1} {
			figure, err := b.costsAt(n, keys)
			if err != nil {
				return err
			}
			if err := harness.Print(b.to, "order_costs_us", figure); err != nil {
				return err
			}
		}
	}
	return nil
}

var source = parked.Source{Group: "bench", Topic: "orders"}

func (b *bench) costsAt(n, keys int) (figure harness.Figure, err error) {
	db, err := b.base()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(24)
	db.SetMaxIdleConns(24)
	// the tables
	if _, err := spillway.New(b.ctx, spillway.Config{Service: "bench", DB: db.DB,
		Ordered: &spillway.OrderedConfig{}}); err != nil {
		return nil, err
	}
	store, err := sequence.NewStore(b.ctx, db.DB, "bench")
	if err != nil {
		return nil, err
	}
	if err := b.stock(db, store, n, keys); err != nil {
		return nil, err
	}
	owner := (&sequence.Ordering{Store: store, Logger: watermill.NopLogger{}}).Own(source)
	begun := time.Now()
	if !owner.Load(b.ctx) {
		return nil, b.ctx.Err()
	}
	figure = harness.Figure{"parked": n, "keys": keys, "take_over_ms": harness.Hundredths(ms(time.Since(begun)))}
	lanes := make([][]byte, 1024)
	for i := range lanes {
		lanes[i] = laneOf(i % (2 * keys)) // of which every second one waits, if there are many
	}
	const looks = 1_000_000
	begun = time.Now()
	for i := range looks {
		owner.Waits(lanes[i%len(lanes)])
	}
	figure["look_up_ns"] = harness.Whole(float64(time.Since(begun).Nanoseconds()) / looks)

	// what is parked meanwhile is drained meanwhile, so that the number of parked messages stays
	park, err := b.each(b.costs, func(i int) error {
		return store.Park(b.ctx, source, rowOf(n+i, keys), 0)
	})
	if err != nil {
		return nil, err
	}
	drain, err := b.drain(owner, b.costs, keys)
	figure["park_us"], figure["drain_us"] = harness.Whole(park), harness.Whole(drain)
	return figure, err
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// each calls do n times, as many at a time as there are lanes, and returns the microseconds that one takes of all.
func (b *bench) each(n int, do func(int) error) (float64, error) {
	var all sync.WaitGroup
	errs := make([]error, b.lanes)
	begun := time.Now()
	for w := range b.lanes {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += b.lanes {
				errs[w] = do(i)
			}
		})
	}
	all.Wait()
	return float64(time.Since(begun).Microseconds()) / float64(n), errors.Join(errs...)
}

// drain passes n messages on, each as soon as it is read, and returns the microseconds that one takes of all.
func (b *bench) drain(owner *sequence.Owner, n, keys int) (float64, error) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var mu sync.Mutex
	passed := 0
	var all sync.WaitGroup
	begun := time.Now()
	for range b.lanes {
		all.Go(func() {
			for {
				l := owner.Next(ctx)
				if l == nil {
					return
				}
				owner.Drain(ctx, b.ctx, l, func(*sequence.Row) (bool, bool) {
					mu.Lock()
					defer mu.Unlock()
					if passed++; passed >= n {
						cancel()
					}
					return true, false
				})
			}
		})
	}
	all.Wait()
	return float64(time.Since(begun).Microseconds()) / float64(passed), b.ctx.Err()
}

func laneOf(i int) []byte { return fmt.Appendf(nil, "key-%d", i) }

func rowOf(i, keys int) *sequence.Row {
	msg := harness.Numbered(i)
	return &sequence.Row{Lane: laneOf(i % keys), RecordKey: laneOf(i % keys), Position: int64(i), SentAt: time.Now(),
		Fingerprint: sequence.FingerprintOf(msg), Key: keytable.Key{Consumer: "bench", ID: msg.UUID}, Msg: msg}
}

// stock parks n messages: one by the store, of which the others are copies.
func (b *bench) stock(db *harness.Database, store *sequence.Store, n, keys int) error {
	if err := store.Park(b.ctx, source, rowOf(0, keys), 0); err != nil {
		return err
	}
	_, err := db.ExecContext(b.ctx, `INSERT INTO spillway_parked (service, members, topic, part, source, lane, position, fingerprint,
redrives, due_at, held, sent_at, consumer, key_id, record_key, bytes, id, metadata, payload)
SELECT service, members, topic, part, source, convert_to('key-' || i % $2, 'UTF8'), i, fingerprint, redrives, due_at, held, sent_at,
consumer, gen_random_uuid()::text, convert_to('key-' || i % $2, 'UTF8'), bytes, id, metadata, payload
FROM spillway_parked, generate_series(1, $1::bigint - 1) i`, n, keys)
	return err
}
