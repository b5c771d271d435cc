package crashlimit

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/causes"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/settings"
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
					_ = leave(l.Middleware(func(*message.Message) ([]*message.Message, error) {
						if n := f.marksOf("a"); n != 1 {
							t.Errorf("%d marks while the handler runs", n)
						}
						if name == "aborted" {
							cancel()
						}
						return nil, end()
					}), msg)
					if n := f.marksOf("a"); n != 0 {
						t.Fatalf("%d marks after %s", n, name)
					}
				}
				if !l.admission.isEmpty() || len(l.admission.shared) != 0 {
					t.Error("a message is left inside")
				}
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
		if n := f.marksOf("a"); n != 0 {
			t.Error("the mark is left")
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

// Feature D10: marks beyond those that are remembered are forgotten, and said to be, once; those that are remembered go.
func TestTooManyDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []string{"owed", "kept"} {
			f := newFake()
			var log text
			l := afterCrash(t, f, options{quietAfter: 24 * time.Hour, Config: Config{Shared: settings.Shared{Logger: watermill.NewStdLoggerWithOut(&log, false, false)}}})
			h := l.Middleware(succeed)
			var all []*message.Message
			add := func() {
				msg := newMessage(strconv.Itoa(len(all)))
				all = append(all, msg)
				if kind == "kept" {
					f.leaveMarks(msg.UUID, 3)
					_, _ = h(msg)
					return
				}
				f.leaveMarks(msg.UUID, 1)
				f.set(func() { f.down = true })
				l.remove(markOf(msg.UUID), written{2, "p"})
				f.set(func() { f.down = false })
			}
			said := func() int { return strings.Count(log.String(), "is forgotten") }
			for range most {
				add()
			}
			if n := said(); n != 0 {
				t.Errorf("%s: logged %d times before there were too many", kind, n)
			}
			if kind == "owed" && !l.removals.add(markOf("0"), written{3, ""}) {
				t.Error("a mark that is owed already finds no space")
			}
			for range 3 {
				add()
			}
			if n := said(); n != 1 || !strings.Contains(log.String(), "key="+strconv.Itoa(most)) {
				t.Errorf("%s: logged %d times: %s", kind, n, log.String())
			}
			for _, msg := range all {
				msg.Ack()
			}
			tick(2)
			if kind == "kept" { // until an orderly end
				if n := f.count(func() int { return len(f.left) }); n != most+3 {
					t.Errorf("%d marks are left of messages that were just acked", n)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			if n := f.count(func() int { return len(f.left) }); n != 3 {
				t.Errorf("%s: %d marks are left, not those that were forgotten", kind, n)
			}
		}
	})
}

// Features D10, V3: a redriven message starts anew, though the marks of the refused one were not removed before the process
// ended, and uses up a count of its own.
func TestRedriven(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		f.leaveMarks("a", 3)
		redriven := func(count string) *message.Message {
			msg := newMessage("a")
			msg.Metadata[poison.KeyRedriveCount] = count
			return msg
		}
		if _, err := l.Middleware(succeed)(newMessage("a")); verdict(err).Reason != classify.ReasonMaxDeliveries {
			t.Errorf("not refused: %v", err)
		}
		for _, count := range []string{"1", "2"} {
			calls := 0
			if _, err := l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })(redriven(count)); err != nil || calls != 1 {
				t.Errorf("redrive %s: %d calls, %v", count, calls, err)
			}
		}
		for _, forged := range []string{"0", "-1", "x", "99999999999999999999"} {
			if _, err := l.Middleware(succeed)(redriven(forged)); verdict(err).Reason != classify.ReasonMaxDeliveries {
				t.Errorf("a count of %q starts anew: %v", forged, err)
			}
		}
	})
}

// Feature D10, promise P4: a delivery does not go on while an earlier one of its message, in the same process, waits to learn
// whether too many processes ended.
func TestSecondDeliveryWaitsForTheFirst(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		f.leaveMarks("a", 3)
		f.leaveMarks("b", 2)
		calls := map[string]int{}
		errs := map[string][]error{}
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
				errs[id] = append(errs[id], err)
			})
			synctest.Wait()
		}
		all.Wait()
		refused := 0
		for _, err := range errs["a"] {
			if verdict(err).Reason == classify.ReasonMaxDeliveries {
				refused++
			} else if failure, ok := causes.Find[*classify.Failure](err); !ok || failure.Verdict.Class != classify.ClassAborted {
				t.Errorf("neither refused nor given back: %v", err)
			}
		}
		if refused != 1 || calls["a"] != 0 || calls["b"] != 2 || calls["c"] != 2 {
			t.Errorf("refused %d times, handled %v, %v", refused, calls, errs)
		}
		if f.marksOf("a") != 3 || f.marksOf("b") != 0 || !l.admission.isEmpty() {
			t.Errorf("marks are left: %v", f.left)
		}
	})
}

// Feature D10, promise P3: what this process lived through is no death, also by a limit that it dropped without closing it.
func TestOwnMarks(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		begin, calls := time.Now(), 0
		f.left[markOf("a")] = []written{{1, l.self + ".1"}, {2, l.self + ".2"}, {3, l.self + ".3"}, {4, "b.1"}, {5, "c.1"}}
		for range 2 {
			if _, err := l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })(newMessage("a")); err != nil {
				t.Error(err)
			}
		}
		if calls != 2 || time.Since(begin) != 0 || len(f.left) != 0 {
			t.Errorf("%d calls after %s, marks %v", calls, time.Since(begin), f.left)
		}
	})
}

// Feature D10: messages that nothing tells apart, in flight in processes that live, are handled, all and at once. Those that
// ended with one are counted. A key tells them apart.
func TestWithoutIDs(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		afterCrash(t, f, options{})
		begin, release := time.Now(), make(chan struct{})
		var all sync.WaitGroup
		var running atomic.Int64
		h := func(*message.Message) ([]*message.Message, error) { running.Add(1); <-release; return nil, nil }
		const processes, each = 6, 3
		for range processes {
			l := newLimit(t, options{store: f})
			for range each {
				all.Go(func() {
					if _, err := l.Middleware(h)(newMessage("")); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		if running.Load() != processes*each || !time.Now().Equal(begin) {
			t.Errorf("%d of %d are handled after %s", running.Load(), processes*each, time.Since(begin))
		}
		close(release)
		all.Wait()
		if len(f.left) != 0 {
			t.Errorf("marks are left: %v", f.left)
		}
		dead := started(t, f, options{})
		content := dead.markOf(newMessage(""))
		for i := range 3 {
			f.left[content] = append(f.left[content], written{i + 1, fmt.Sprintf("gone%d.1", i)})
		}
		tick(1) // which shows that they are gone
		at := func(offset string) *Limit {
			return started(t, f, options{Config: Config{Key: func(*message.Message) string { return offset }}})
		}
		for offset, refused := range map[string]bool{"": true, "orders/0/7": false} {
			l := at(offset)
			for range 5 { // the first may not know yet that those processes are gone
				_, _ = l.Middleware(succeed)(newMessage(""))
				f.set(func() {
					if len(f.left[content]) < 3 {
						f.left[content] = []written{{1, "gone0.1"}, {2, "gone1.1"}, {3, "gone2.1"}}
					}
				})
				tick(1)
			}
			if _, err := l.Middleware(succeed)(newMessage("")); (verdict(err).Reason == classify.ReasonMaxDeliveries) != refused {
				t.Errorf("at %q: %v", offset, err)
			}
		}
	})
}

// Feature D10, D15: the mark, and the turn of a suspect, stay until what the handler produced is published, and its message
// acked, or nacked, or gone.
func TestMarkStaysUntilPublished(t *testing.T) {
	for name, settle := range map[string]func(*message.Message, *Limit, context.CancelFunc){
		"acked":  func(msg *message.Message, _ *Limit, _ context.CancelFunc) { msg.Ack() },
		"nacked": func(msg *message.Message, _ *Limit, _ context.CancelFunc) { msg.Nack() },
		"gone":   func(_ *message.Message, _ *Limit, cancel context.CancelFunc) { cancel() },
		"closed": func(_ *message.Message, l *Limit, _ context.CancelFunc) {
			if err := l.Close(); err != nil {
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
				if len(out) != 1 || err != nil || f.marksOf("a") != 2 || !l.admission.taken {
					t.Errorf("%d marks while outputs are published: %v", f.marksOf("a"), err)
				}
				settle(msg, l, cancel)
				synctest.Wait()
				if f.marksOf("a") != 0 || !l.admission.isEmpty() || len(l.pending.visits) != 0 {
					t.Errorf("%d marks are left", f.marksOf("a"))
				}
				if name == "closed" && f.count(func() int { return len(f.processes) }) != 1 { // the one that crashed
					t.Error("not signed off")
				}
			})
		})
	}
}

// Feature D10: a message is known by its key, else by its id, else by what it holds.
func TestMarkOf(t *testing.T) {
	l := newLimit(t, options{store: newFake(), Config: Config{Key: func(msg *message.Message) string {
		if msg.UUID == "panics" {
			panic("boom")
		}
		return msg.Metadata["key"]
	}}})
	of := func(id, payload string, metadata ...string) mark {
		msg := message.NewMessage(id, []byte(payload))
		for i := 0; i < len(metadata); i += 2 {
			msg.Metadata[metadata[i]] = metadata[i+1]
		}
		return l.markOf(msg)
	}
	if got := of("id", "", "key", "k"); got != markOf("k") {
		t.Error(got)
	}
	if of("id", "").id != "id" || of("panics", "").id != "panics" {
		t.Error("the id does not serve")
	}
	if of("", "x", "a", "1", "b", "2") != of("", "x", "b", "2", "a", "1") {
		t.Error("the same content has two marks")
	}
	seen := map[mark]bool{}
	for _, m := range []mark{of("", ""), of("", "a"), of("", "", "a", ""), of("", "a", "b", ""), of("", "", "a", "b"), of("", "", "ab", ""), of("", "", "", "ab")} {
		if seen[m] {
			t.Error("two contents have the same mark")
		}
		seen[m] = true
	}
}

// text is what several goroutines wrote.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
