package crashlimit

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
	"github.com/watermill-spillway/spillway/observe"
)

// Feature D10: while marking there is a mark as long as the handler runs, and none after any orderly end of it.
func TestMarkGoesWithTheDelivery(t *testing.T) {
	for name, end := range map[string]func() error{
		"success": func() error { return nil }, "error": func() error { return errBoom },
		"panic": func() error { panic("boom") }, "goexit": func() error { runtime.Goexit(); return nil },
		"aborted": func() error { return context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				msg := newMessage("a")
				msg.SetContext(ctx)
				for range 5 {
					_, _ = testkit.Contained(l.Middleware(func(*message.Message) ([]*message.Message, error) {
						testkit.Equal(t, "marks while the handler runs", f.marksOf("a"), 1)
						if name == "aborted" {
							cancel()
						}
						return nil, end()
					}), msg)
					n := f.marksOf("a")
					testkit.Require(t, n == 0, "%d marks after %s", n, name)
				}
				testkit.Check(t, l.admission.isEmpty() && len(l.admission.shared) == 0, "a message is left inside")
			})
		})
	}
}

// Feature D10: a mark goes also when marking ended before its delivery did.
func TestMarkGoesAfterMarking(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) {
			time.Sleep(time.Hour)
			synctest.Wait()
			wantMode(t, l, quiet, "meanwhile")
			return nil, nil
		})(newMessage("a"))
		testkit.Equal(t, "the mark is left", f.marksOf("a"), 0)
	})
}

// Feature D10, R13: a parked message that a person released starts anew, at each release. What ends processes after that
// is counted again.
func TestReleaseForgetsMarks(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		calls := 0
		deliver := func(released int64) error {
			msg := newMessage("a")
			if released > 0 {
				msg.SetContext(chain.WithReentry(msg.Context(), &chain.Reentry{Stage: 1, Released: released}))
			}
			_, err := l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })(msg)
			return err
		}
		f.leaveMarks("a", l.config.Max)
		f.set(func() {
			f.left[deliveries.Key{ID: "a", Redrives: -7}] = f.left[markOf("a")]
		})
		refused := deliver(0) != nil && deliver(7) != nil
		if err := deliver(8); !refused || err != nil || calls != 1 {
			t.Errorf("refused before: %t; released: %v, with %d calls", refused, err, calls)
		}
	})
}

// Feature D10: attached twice, or given the same message twice at a time, a limit neither waits for itself nor counts.
func TestTwiceAtATime(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		begin, calls := time.Now(), 0
		f.leaveMarks("a", 1)
		_, err := l.Middleware(l.Middleware(func(*message.Message) ([]*message.Message, error) {
			calls++
			_, err := l.Middleware(succeed)(newMessage("a"))
			return nil, err
		}))(newMessage("a"))
		if err != nil || calls != 1 || time.Since(begin) != 0 || f.marksOf("a") != 0 || !l.admission.isEmpty() {
			t.Errorf("%v, %d calls, %s, %d marks", err, calls, time.Since(begin), f.marksOf("a"))
		}
	})
}

// Feature D10: marks beyond those that are remembered are forgotten, and said to be, once; those that are remembered
// go.
func TestTooManyDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log := newFake(), &testkit.Log{}
		l := afterCrash(t, f, options{quietAfter: 24 * time.Hour, Config: Config{Shared: observe.Shared{Logger: log}}})
		n := 0
		add := func() {
			id := strconv.Itoa(n)
			n++
			f.leaveMarks(id, 1)
			f.set(func() { f.down = true })
			l.remove(markOf(id), deliveries.Mark{Delivery: 2, Process: "p"})
			f.set(func() { f.down = false })
		}
		said := func() int { return len(log.Lines(watermill.ErrorLogLevel, "is forgotten")) }
		for range most {
			add()
		}
		testkit.Equal(t, "logged before there were too many", said(), 0)
		testkit.Check(t, l.removals.add(markOf("0"), deliveries.Mark{Delivery: 3}),
			"a mark that is owed already finds no space")
		for range 3 {
			add()
		}
		testkit.Check(t, said() == 1 && log.Has("is forgotten", "key", strconv.Itoa(most)), "logged: %s", log.Errors())
		tick(2)
		testkit.Equal(t, "marks that are left, those that were forgotten", f.count(func() int { return len(f.left) }), 3)
	})
}

// Feature D10, promise P4: a delivery does not go on while an earlier one of its message, in the same process, waits to
// learn whether too many processes ended.
func TestSecondDeliveryWaitsForTheFirst(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		f.leaveMarks("a", 3)
		f.leaveMarks("b", 2)
		for i := range 3 { // they may still live
			f.processes[fmt.Sprintf("gone%d.1", i)] = &fakeProcess{beat: 2 * time.Second}
		}
		calls := map[string]int{}
		failures := map[string][]error{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, id := range []string{"a", "a", "a", "b", "b", "c", "c"} {
			all.Go(func() {
				_, err := l.Middleware(func(*message.Message) ([]*message.Message, error) {
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					calls[id]++
					return nil, nil
				})(newMessage(id))
				mu.Lock()
				defer mu.Unlock()
				failures[id] = append(failures[id], err)
			})
			synctest.Wait()
		}
		all.Wait()
		refused := 0
		for _, err := range failures["a"] {
			if verdict(err).Reason == classify.ReasonMaxDeliveries {
				refused++
			} else if failure, ok := errs.Find[*classify.Failure](err); !ok || failure.Verdict.Class != classify.ClassAborted {
				t.Errorf("neither refused nor given back: %v", err)
			}
		}
		if refused != 1 || calls["a"] != 0 || calls["b"] != 2 || calls["c"] != 2 {
			t.Errorf("refused %d times, handled %v, %v", refused, calls, failures)
		}
		if f.marksOf("a") != 3 || f.marksOf("b") != 0 || !l.admission.isEmpty() {
			t.Errorf("marks are left: %v", f.left)
		}
	})
}

// Feature D10, promise P3: what this process lived through is no death, also by a limit that it dropped without closing
// it.
func TestOwnMarks(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		begin, calls := time.Now(), 0
		f.left[markOf("a")] = marksBy(l.self+".1", l.self+".2", l.self+".3", "b.1", "c.1")
		for range 2 {
			if _, err := l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })(newMessage("a")); err != nil {
				t.Error(err)
			}
		}
		testkit.Check(t, calls == 2 && time.Since(begin) == 0 && len(f.left) == 0,
			"%d calls after %s, marks %v", calls, time.Since(begin), f.left)
	})
}

// Feature D10, D15: the mark, and the turn of a suspect, stay until what the handler produced is published, and its
// message acked, or nacked, or gone.
func TestMarkStaysUntilPublished(t *testing.T) {
	for name, settle := range map[string]func(*message.Message, *Limit, context.CancelFunc){
		"acked":  func(msg *message.Message, _ *Limit, _ context.CancelFunc) { msg.Ack() },
		"nacked": func(msg *message.Message, _ *Limit, _ context.CancelFunc) { msg.Nack() },
		"gone":   func(_ *message.Message, _ *Limit, cancel context.CancelFunc) { cancel() },
		"closed": func(_ *message.Message, l *Limit, _ context.CancelFunc) {
			if err := l.end(); err != nil {
				panic(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
				f.leaveMarks("a", 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				msg := newMessage("a")
				msg.SetContext(ctx)
				out, err := l.Middleware(func(*message.Message) ([]*message.Message, error) {
					return []*message.Message{newMessage("out")}, nil
				})(msg)
				synctest.Wait()
				testkit.Check(t, len(out) == 1 && err == nil && f.marksOf("a") == 2 && l.admission.taken,
					"%d marks while outputs are published: %v", f.marksOf("a"), err)
				settle(msg, l, cancel)
				synctest.Wait()
				testkit.Check(t, f.marksOf("a") == 0 && l.admission.isEmpty() && l.pending.n == 0,
					"%d marks are left", f.marksOf("a"))
				if name == "closed" && f.count(func() int { return len(f.processes) }) != 1 { // the one that crashed
					t.Error("not signed off")
				}
			})
		})
	}
}
