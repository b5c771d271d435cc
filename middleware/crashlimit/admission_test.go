package crashlimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature D10: a message that was in flight when a process ended is handled alone: nothing runs beside it, neither what
// began before nor what comes, and a message that waits is not counted. As long as others come and go its turn is
// waited for, however many there are.
func TestSuspectsRunAlone(t *testing.T) {
	begins(t, options{aloneWait: 3 * time.Second}, func(t *testing.T, f *fake, l *Limit) {
		var running atomic.Int64
		h := l.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			suspect := msg.UUID[0] == 's'
			beside := running.Add(1) - 1
			defer running.Add(-1)
			if suspect && beside != 0 {
				t.Errorf("%s runs beside %d others", msg.UUID, beside)
			}
			time.Sleep(time.Second)
			if suspect && running.Load() != 1 {
				t.Errorf("%d others came beside %s", running.Load()-1, msg.UUID)
			}
			if counted := f.count(func() (n int) {
				for m, count := range f.left {
					if m.ID[0] != 's' || len(count) > 1 {
						n++
					}
				}
				return n
			}); suspect && counted != 1 {
				t.Errorf("%d would be counted if the process ended while %s runs", counted, msg.UUID)
			}
			return nil, nil
		})
		var all sync.WaitGroup
		deliver := func(id string) {
			all.Go(func() {
				testkit.Is(t, testkit.Err(h(newMessage(id))), nil)
			})
		}
		for i := range 3 {
			deliver(fmt.Sprint("before-", i)) // unmarked
		}
		synctest.Wait()
		l.mode.Store(marking)
		for i := range 5 {
			f.leaveMarks(fmt.Sprint("s-", i), 1)
			deliver(fmt.Sprint("ordinary-", i))
			deliver(fmt.Sprint("s-", i))
		}
		all.Wait()
		testkit.Check(t, l.admission.isEmpty() && len(f.left) == 0, "%d marks are left", len(f.left))
	})
}

// Feature D10: handlers that wait for each other are not kept apart for ever.
func TestSuspectsWaitIsBounded(t *testing.T) {
	marks(t, options{aloneWait: 5 * time.Second}, func(t *testing.T, f *fake, l *Limit) {
		met := make(chan struct{})
		begin := time.Now()
		var all sync.WaitGroup
		f.leaveMarks("s-1", 1)
		f.leaveMarks("s-2", 1)
		for _, h := range []struct {
			id   string
			meet func()
		}{{"s-1", func() { <-met }}, {"s-2", func() { <-met }}, {"o", func() { met <- struct{}{}; met <- struct{}{} }}} {
			all.Go(func() {
				_, err := l.Middleware(func(*message.Message) ([]*message.Message, error) { h.meet(); return nil, nil })(newMessage(h.id))
				testkit.Is(t, err, nil)
			})
			synctest.Wait()
		}
		all.Wait()
		took := time.Since(begin)
		testkit.Check(t, took >= 5*time.Second && took <= 15*time.Second, "they met after %s", took)
	})
}

// Promise P3: a message that goes away while it waits is given back, uncounted; one with a deadline keeps half of its
// time; one that has no time left when it comes is the handler's to fail; and one that was acked in an outer chain is
// still waited for.
func TestSuspectGoesAway(t *testing.T) {
	marks(t, options{aloneWait: time.Hour}, func(t *testing.T, f *fake, l *Limit) {
		f.leaveMarks("s", 1)
		release, calls := make(chan struct{}), 0
		go func() {
			_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) { <-release; return nil, nil })(newMessage("o"))
		}()
		synctest.Wait()
		h := l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })
		handle := func(ctx context.Context, ack bool) (took time.Duration, err error) {
			begin, msg := time.Now(), newMessage("s")
			if msg.SetContext(ctx); ack {
				msg.Ack()
			}
			_, err = h(msg)
			return time.Since(begin), err
		}
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := handle(cancelled, false)
		failure, ok := errs.Find[*classify.Failure](err)
		testkit.Check(t, ok && failure.Verdict.Class == classify.ClassAborted && calls == 0 && f.marksOf("s") == 1,
			"cancelled: %v, %d calls, %d marks", err, calls, f.marksOf("s"))
		for i := range 40 { // what comes too late can be decided by lot
			after, want := 30*time.Second, 15*time.Second
			if i > 0 {
				after, want = -time.Second, 0
			}
			ctx, cancel := context.WithTimeout(t.Context(), after)
			f.leaveMarks("s", 1)
			took, err := handle(ctx, false)
			testkit.Check(t, err == nil && took == want, "with a deadline in %s: %v after %s", after, err, took)
			cancel()
		}
		time.AfterFunc(time.Minute, func() { close(release) })
		f.leaveMarks("s", 1)
		took, err := handle(cancelled, true)
		testkit.Check(t, err == nil && took == time.Minute && calls == 41, "acked: %v, %d calls after %s", err, calls, took)
		synctest.Wait()
		testkit.Check(t, l.admission.isEmpty(), "a message is left inside")
	})
}

// Feature D10: whatever comes, waits, gives up and goes, in any order: it is empty in the end, and a message that is
// alone is alone.
func TestRoomUnderLoad(t *testing.T) {
	var a admission
	var running, suspects atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.N(4) == 0 {
					time.AfterFunc(rand.N(time.Millisecond), cancel)
				}
				a.unmarked.Add(1)
				at := slotPlain
				var err error
				for _, suspect := range [][]bool{{}, {false}, {false, true}, {true}}[rand.N(4)] {
					if at, err = a.move(ctx, at, suspect, time.Minute); err != nil {
						break
					}
				}
				if err == nil && at != slotPlain { // what began unmarked is let in whatever is
					n := running.Add(1)
					testkit.Check(t, at != slotAlone || n == 1 && suspects.Add(1) == 1, "a suspect is not alone")
					if at == slotAlone {
						suspects.Add(-1)
					}
					running.Add(-1)
				}
				a.leave(at)
				cancel()
			}
		})
	}
	all.Wait()
	if !a.isEmpty() || a.suspects.Load() != 0 || a.inside != 0 {
		t.Errorf("left behind: %d plain, %d inside, %d in line", a.unmarked.Load(), a.inside, len(a.queue))
	}
}
