package outage

import (
	"context"
	"database/sql/driver"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var errUnavailable = driver.ErrBadConn

func call(ctx context.Context, id string) *chain.Call {
	msg := message.NewMessage(id, []byte("payload"))
	msg.SetContext(ctx)
	return chain.Keep(msg)
}

func requeued(err error) bool {
	failure, ok := errs.Find[*classify.Failure](err)
	return ok && failure.Verdict.Class == classify.ClassAborted
}

// thing is unavailable or not, and counts who asks for it.
type thing struct {
	down  atomic.Bool
	asked atomic.Int32
}

func (d *thing) ask() error {
	d.asked.Add(1)
	if d.down.Load() {
		return errUnavailable
	}
	return nil
}

// Promises P3, P5: messages are held through an outage, one attempt a second for all. The log has its begin and end.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := watermill.NewCaptureLogger()
		g := New(Config{Name: "store", Logger: logger})
		do := func(id string, err error) {
			within, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
			defer cancel()
			_ = g.Do(within, call(within, id), func() error { return err })
		}
		do("a", errDial)
		do("b", errDial)
		do("c", nil)
		time.Sleep(2 * calm)
		testkit.Equal(t, "a moment is an outage", len(logger.Captured()[watermill.ErrorLogLevel]), 0)
		var d thing
		d.down.Store(true)
		var all sync.WaitGroup
		began := time.Now()
		for i := range 200 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Millisecond)
				testkit.Is(t, g.Do(t.Context(), call(t.Context(), strconv.Itoa(i)), d.ask), nil)
				late := time.Since(began) - 14*time.Second
				testkit.Check(t, late >= 0 && late <= probeEvery, "through %s after the outage", late)
			})
		}
		time.Sleep(14 * time.Second)
		n := d.asked.Load()
		testkit.Check(t, n <= 16, "%d attempts in 14 s", n)
		d.down.Store(false)
		all.Wait()
		for i := range 4 {
			do("late-"+strconv.Itoa(i), errDial)
			do("more-"+strconv.Itoa(i), nil)
			time.Sleep(calm / 2)
		}
		time.Sleep(calm)
		synctest.Wait()
		lines := logger.Captured()
		testkit.Require(t, len(lines[watermill.ErrorLogLevel]) == 1 && len(lines[watermill.InfoLogLevel]) == 1,
			"logged %v", lines)
		said := lines[watermill.InfoLogLevel][0].Fields
		others := said["held"].(int) - 200 // all given back
		testkit.Check(t, others >= 0 && others == said["given_back"], "the end of the outage says %v", said)
	})
}

// Promise P3: a held message is given back, uncounted, after MaxHold, or before its deadline, or with its context.
func TestRequeued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{})
		var d thing
		d.down.Store(true)
		for want, within := range map[time.Duration]time.Duration{hold.DefaultMaxHold: time.Hour, 9 * time.Second: 10 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			began := time.Now()
			err := g.Do(ctx, call(ctx, "m"), d.ask)
			took := time.Since(began)
			testkit.Check(t, requeued(err) && took == want, "after %s, not %s: %v", took, want, err)
			cancel()
		}
		adapters := hold.WithMaxHold(t.Context(), time.Hour)
		for configured, want := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: time.Minute} {
			var unavailable thing
			unavailable.down.Store(true)
			began := time.Now()
			err := New(Config{MaxHold: configured}).Do(adapters, call(adapters, "m"), unavailable.ask)
			testkit.Check(t, requeued(err) && time.Since(began) == want,
				"an adapter's hold, and %s configured: after %s: %v", configured, time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		const ends = 2500 * time.Millisecond // between two attempts: one that is cut off keeps its error
		defer time.AfterFunc(ends, cancel).Stop()
		began := time.Now()
		err := g.Do(ctx, call(ctx, "m"), d.ask)
		testkit.Check(t, requeued(err) && time.Since(began) == ends, "after %s: %v", time.Since(began), err)
	})
}

// Promise P1: a message that its handler acked cannot come again, so it keeps its error, with which it is set aside.
func TestAckedIsNotRequeued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := call(t.Context(), "m")
		c.Msg.Ack()
		testkit.Equal(t, "", New(Config{}).Do(t.Context(), c, func() error { return errUnavailable }), errUnavailable)
	})
}

// Promise P4: a message that alone is refused ends in a bounded time, and holds no other up meanwhile.
func TestRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := watermill.NewCaptureLogger()
		g := New(Config{Logger: logger})
		ctx, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				began := time.Now()
				err := g.Do(ctx, call(ctx, strconv.Itoa(i)), func() error { return nil })
				testkit.Check(t, err == nil && time.Since(began) == 0,
					"another one: %v after %s", err, time.Since(began))
				time.Sleep(100 * time.Millisecond)
			}
		})
		began := time.Now()
		err, deliveries := error(nil), 0
		for err == nil || requeued(err) {
			deliveries++
			err = g.Do(ctx, call(ctx, "m"), func() error { return errUnavailable })
		}
		took := time.Since(began)
		testkit.Check(t, err == errUnavailable && took >= maxRefusal && took <= maxRefusal+hold.DefaultMaxHold,
			"after %s: %v", took, err)
		err = g.Do(ctx, call(ctx, "m"), func() error { return errUnavailable })
		testkit.Check(t, err == errUnavailable, "a message that was found out is held again: %v", err)
		stop()
		others.Wait()
		testkit.Equal(t, "one message's trouble is an outage", len(logger.Captured()[watermill.ErrorLogLevel]), 0)
		refused := errors.New("too large")
		testkit.Equal(t, "", g.Do(t.Context(), call(t.Context(), "n"), func() error { return refused }), refused)
	})
}

// Promises P3, P4: work that is interrupted is given back when the thing answers again, and at most ten times in a row.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{})
		var d thing
		d.down.Store(true)
		defer time.AfterFunc(5*time.Second, func() { d.down.Store(false) }).Stop()
		began := time.Now()
		err := g.Interrupted(t.Context(), call(t.Context(), "m"), errUnavailable, d.ask)
		testkit.Check(t, requeued(err) && time.Since(began) >= 5*time.Second, "after %s: %v", time.Since(began), err)
		for range maxInterruptions - 1 {
			err := g.Interrupted(t.Context(), call(t.Context(), "m"), errUnavailable, d.ask)
			testkit.Check(t, requeued(err), "%v", err)
		}
		err = g.Interrupted(t.Context(), call(t.Context(), "m"), errUnavailable, d.ask)
		testkit.Check(t, err == errUnavailable, "given back without end: %v", err)
		g.Settled(call(t.Context(), "m"))
		err = g.Interrupted(t.Context(), call(t.Context(), "m"), errUnavailable, d.ask)
		testkit.Check(t, requeued(err), "a message that came through is still counted: %v", err)
	})
}

// Promise P4: a message that ends the connection each time ends itself, although nothing else passes.
func TestEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errLost := &amqp091.Error{Code: amqp091.FrameError}
		g := New(Config{Lost: Lost})
		err, asked := error(nil), 0
		for began := time.Now(); err == nil || requeued(err); {
			err = g.Do(t.Context(), call(t.Context(), "m"), func() error { asked++; return errLost })
			testkit.Require(t, time.Since(began) <= time.Hour, "it is held for ever")
		}
		testkit.Check(t, err == error(errLost) && asked == maxInterruptions+1, "after %d attempts: %v", asked, err)
	})
}

// Promise P5: what is remembered is forgotten, and then a success notes nothing.
func TestSuspectsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{})
		_ = g.Interrupted(t.Context(), call(t.Context(), "1"), errUnavailable, nil)
		time.Sleep(forgotten + time.Minute)
		err := g.Do(t.Context(), call(t.Context(), "m"), func() error { return nil })
		testkit.Check(t, err == nil && !g.noting.Load(), "%v, and %d are remembered", err, g.suspects.Len())
	})
}

// Promise P5: while nothing is unavailable a dependency costs nothing.
func TestAllocations(t *testing.T) {
	g := New(Config{})
	c, try := call(t.Context(), "m"), func() error { return nil }
	testkit.Equal(t, "allocations", testing.AllocsPerRun(100, func() { _ = g.Do(c.Ctx, c, try) }), 0)
}
