package e2e_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
)

// head delivers the first parked message of the lane that is due, once.
func (p *partition) head(ctx context.Context) (acked bool) {
	p.t.Helper()
	soon, cancel := context.WithTimeout(p.t.Context(), testkit.Patience)
	defer cancel()
	lane := p.owner.Next(soon)
	testkit.Require(p.t, lane != nil, "no lane is due")
	p.owner.Drain(soon, p.t.Context(), lane, func(row *sequence.Row) (passed, again bool) {
		order, ctx := p.owner.Parked(ctx, row)
		l := &line{order: order}
		acked = p.send(row.Msg, ctx, l)
		return acked && !l.order.Again, l.order.Again
	})
	return acked
}

// Feature R13: what ends a message that waits lets the next one of its key go on, and a postponed one is not parked.
func TestOrderedComposes(t *testing.T) {
	locked := classify.NotNow(errors.New("locked"), classify.RetryAfter(time.Millisecond))
	first := func(times int, err error) error {
		if times == 1 {
			return err
		}
		return nil
	}
	for name, c := range map[string]struct {
		change  func(*spillway.Config)
		fails   func(times int) error // of a1
		seen    string                // at last
		parked  int                   // at first
		letters int
	}{
		"not now":             {func(*spillway.Config) {}, func(times int) error { return first(times, locked) }, "a1 a1 a2", 0, 0},
		"expired":             {func(c *spillway.Config) { c.Guard.ExpiresKey = "until" }, func(int) error { return errDown }, "a1 a2", 2, 1},
		"ended its process":   {func(c *spillway.Config) { c.CrashLimit = &crashlimit.Config{Max: 2, Delivered: crashes()} }, func(int) error { return errDown }, "a1 a2", 2, 1},
		"within the budget":   {func(c *spillway.Config) { c.Retry.Budget = &middleware.Budget{} }, func(times int) error { return first(times, errDown) }, "a1 a1 a2", 2, 0},
		"secret in its error": {func(*spillway.Config) {}, func(times int) error { return first(times, errors.New("password=hunter2")) }, "a1 a1 a2", 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := ordered(t, databases.SQLite.New(t), func(msg *message.Message, times int) error {
				if msg.UUID == "a1" {
					return c.fails(times)
				}
				return nil
			}, func(config *spillway.Config) {
				config.Ordered.Delays = []time.Duration{500 * time.Millisecond}
				c.change(config)
			})
			msg, lane := message.NewMessage("a1", nil), []byte("a")
			msg.Metadata.Set("until", time.Now().Add(300*time.Millisecond).Format(time.RFC3339Nano))
			p.send(msg, t.Context(), &line{order: sequence.Delivery{Owner: p.owner, Lane: lane, RecordKey: lane}})
			p.live("a2", 1, 0)
			testkit.Equal(t, "parked", p.count("spillway_parked"), c.parked)
			shown := p.count("spillway_parked WHERE CAST(metadata AS TEXT) LIKE '%hunter2%'")
			testkit.Equal(t, "with the secret", shown, 0)
			for range c.parked {
				p.head(t.Context())
				if p.count("spillway_parked") == 0 {
					break
				}
			}
			p.want(c.seen, c.letters, 0)
		})
	}
}

// crashes counts three processes that a1 ended, but not at first.
func crashes() func(*message.Message) (int, bool) {
	var times atomic.Int64
	return func(msg *message.Message) (int, bool) {
		if msg.UUID == "a1" && times.Add(1) > 1 {
			return 3, true
		}
		return 0, true
	}
}

// Feature R13: a drain is a retry to the budget. When that is spent, what is parked waits, unattempted.
func TestOrderedSpendsBudget(t *testing.T) {
	p := ordered(t, databases.SQLite.New(t), func(*message.Message, int) error { return errDown }, func(c *spillway.Config) {
		c.Ordered.Delays = []time.Duration{time.Millisecond, time.Hour, time.Hour}
		c.Retry.Budget = &middleware.Budget{Share: -1, PerSecond: 0.001} // one attempt, at first
	})
	p.live("a1", 0, 0)
	p.live("b1", 1, 0)
	for tries := 0; len(p.seen) < 3 && tries < 1000; tries++ { // SQLite may still be busy with the rollback of the one before
		p.head(t.Context())
	}
	seen := strings.Join(p.seen, " ")
	testkit.Check(t, seen == "a1 b1 a1" || seen == "a1 b1 b1", "handled: %s", seen) // whichever is due first
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	testkit.Check(t, !p.head(ctx), "it is acked")
	p.want(seen, 0, 2)
}

// Feature R13: while the breaker is open nothing is parked for the outage, and nothing drained: the one delay would be used
// up, and the message a letter.
func TestOrderedWaitsForBreaker(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	opened := make(chan struct{})
	p := ordered(t, databases.SQLite.New(t), func(*message.Message, int) error {
		if down.Load() {
			return syscall.ECONNREFUSED
		}
		return nil
	}, func(c *spillway.Config) {
		c.Ordered.Delays = c.Ordered.Delays[:1]
		open := sync.OnceFunc(func() { close(opened) })
		c.Breaker = &breaker.Config{MinMessages: 3, Probe: 20 * time.Millisecond, MaxProbe: 20 * time.Millisecond,
			Hooks: breaker.Hooks{OnChange: func(breaker.Change) { open() }}}
	})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for at, id := range []string{"a1", "b1", "c1", "d1"} {
			p.live(id, int64(at), 0)
		}
	})
	<-opened
	before := p.count("spillway_parked")
	testkit.Check(t, before <= 2, "%d are parked before the breaker opens", before)
	for range before {
		waiting.Go(func() { p.head(t.Context()) })
	}
	time.Sleep(200 * time.Millisecond) // ten probes
	testkit.Equal(t, "parked while it is open", p.count("spillway_parked"), before)
	testkit.Equal(t, "letters while it is open", p.count("spillway_dead_letters"), 0)
	down.Store(false)
	waiting.Wait()
	testkit.Equal(t, "letters and parked", p.count("spillway_dead_letters")+p.count("spillway_parked"), 0)
}

// Feature R13: a message whose context ends, before its handler, in it, or while it waits, is given back: nothing is
// parked or lost by it, and it takes effect in its place.
func TestOrderedCancelled(t *testing.T) {
	var cancel context.CancelFunc // in the handler
	p := ordered(t, databases.SQLite.New(t), func(msg *message.Message, times int) error {
		if msg.UUID == "b1" && times == 1 {
			return errDown
		}
		if cancel != nil {
			cancel()
			cancel = nil
			return msg.Context().Err()
		}
		return nil
	})
	deliver := func(ctx context.Context) bool {
		lane := []byte("a")
		return p.send(message.NewMessage("a1", lane), ctx,
			&line{order: sequence.Delivery{Owner: p.owner, Lane: lane, RecordKey: lane}})
	}
	handling, stop := context.WithCancel(t.Context())
	cancel = stop
	testkit.Check(t, !deliver(handling), "it is acked")
	p.want("a1", 0, 0)
	deliver(handling) // it has ended
	testkit.Equal(t, "parked", p.count("spillway_parked"), 0)
	p.seen = nil
	p.live("a1", 0, 0)
	p.live("a2", 1, 0)
	p.live("b1", 2, 0)
	p.live("b2", 3, 0)
	p.want("a1 a2 b1", 0, 2)
	draining, stop := context.WithCancel(t.Context())
	cancel = stop
	for tries := 0; draining.Err() == nil && tries < 1000; tries++ { // until it comes to its handler
		testkit.Check(t, !p.head(draining), "it is acked")
	}
	p.want("a1 a2 b1 b1", 0, 2)
	p.again()
	p.want("a1 a2 b1 b1 b1 b2", 0, 0)
}
