package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
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
	"github.com/watermill-spillway/spillway/poison"
)

var errBoom = errors.New("boom")

func verdict(err error) classify.Verdict { return (*classify.Classifier)(nil).Classify(err) }

func wantText(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v lacks %q", err, text)
		}
	}
}

// afterCrash is a limit that marks.
func afterCrash(t *testing.T, f *fake, config LimitConfig) *Limit {
	t.Helper()
	crash(started(t, f, LimitConfig{}))
	l := started(t, f, config)
	wantMode(t, l, marking, "after a crash")
	return l
}

func (f *fake) marksOf(id string) int {
	return f.count(func() int { return len(f.left[markOf(id)]) })
}

// leave runs a message and contains how it ends.
func leave(h message.HandlerFunc, msg *message.Message) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		_, err = h(msg)
	}()
	<-done
	return err
}

// Feature D10: as long as nothing ended uncleanly no message reaches the store.
func TestQuietAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := started(t, f, LimitConfig{}).Middleware(succeed)
		before := f.calls
		for range 100 {
			_, _ = h(newMessage("a"))
		}
		if f.calls != before {
			t.Errorf("%d statements for 100 messages", f.calls-before)
		}
	})
}

// Feature D10: while marking there is a mark as long as the handler runs, and none after any orderly end of it.
func TestMarkGoesWithTheDelivery(t *testing.T) {
	for name, end := range map[string]func() error{
		"success": func() error { return nil }, "error": func() error { return errBoom },
		"panic": func() error { panic("boom") }, "goexit": func() error { runtime.Goexit(); return nil },
		"aborted": func() error { return context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				l := afterCrash(t, f, LimitConfig{})
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
				if !l.room.isEmpty() || len(l.room.shared) != 0 {
					t.Error("somebody is left in the room")
				}
			})
		})
	}
}

// Feature D10: a mark goes also when marking ended before its delivery did.
func TestMarkGoesAfterMarking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := afterCrash(t, f, LimitConfig{})
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

// Feature D10: after Max deliveries that never returned the handler is not called again, whatever becomes of the letter;
// when the message is acked it starts anew.
func TestExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var told []Exceeded
		l := afterCrash(t, f, LimitConfig{Max: 2, OnExceeded: func(_ context.Context, e Exceeded) { told = append(told, e); panic("hook") }})
		calls := 0
		h := l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })
		f.leaveMarks("a", 2)
		nacked, acked := newMessage("a"), newMessage("a")
		for _, msg := range []*message.Message{nacked, acked} {
			_, err := h(msg)
			if v := verdict(err); v.Class != classify.ClassPermanent || v.Reason != classify.ReasonMaxDeliveries || !strings.Contains(v.Description, "2 deliveries") {
				t.Errorf("verdict %+v", v)
			}
			wantText(t, err, "delivery: a: 2 deliveries")
			if msg == nacked { // the letter found no place
				msg.Nack()
				tick(1)
			}
		}
		if calls != 0 || !slices.Equal(told, []Exceeded{{"billing", "a", 2, false}, {"billing", "a", 2, false}}) {
			t.Errorf("%d calls, told %v", calls, told)
		}
		tick(1)
		if f.marksOf("a") != 2 {
			t.Error("the mark went before the message did")
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := newMessage("a")
		gone.SetContext(ctx)
		_, _ = h(gone)
		cancel()
		tick(1)
		if f.marksOf("a") != 2 || len(l.debts.kept) != 1 {
			t.Error("a message that went away is waited for, or its mark is gone")
		}
		acked.Ack()
		synctest.Wait()
		if f.marksOf("a") != 0 {
			t.Error("the marks wait for a beat after the ack")
		}
		if _, err := h(newMessage("a")); err != nil || calls != 1 {
			t.Errorf("redriven: %v, %d calls", err, calls)
		}
	})
}

// Feature D10: deliveries that never return are counted up to the limit, and a success clears the count.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		run := func(want int, deadly bool) error { // a process from start to end
			l := afterCrash(t, f, LimitConfig{})
			var err error
			done := make(chan struct{})
			stuck := make(chan struct{})
			go func() {
				defer close(done)
				_, err = l.Middleware(func(*message.Message) ([]*message.Message, error) {
					if n := f.marksOf("a"); n != want {
						t.Errorf("%d marks, want %d", n, want)
					}
					if deadly {
						<-stuck
					}
					return nil, nil
				})(newMessage("a"))
			}()
			synctest.Wait()
			saved := f.marksOf("a")
			crash(l)
			close(stuck)
			<-done
			if deadly && err == nil {
				f.leaveMarks("a", saved) // the process was gone before it could
			}
			return err
		}
		for want := 1; want <= 2; want++ {
			_ = run(want, true)
		}
		if err := run(3, false); err != nil || f.marksOf("a") != 0 {
			t.Errorf("a success leaves %d marks: %v", f.marksOf("a"), err)
		}
		for want := 1; want <= 3; want++ {
			_ = run(want, true)
		}
		if _, err := afterCrash(t, f, LimitConfig{}).Middleware(succeed)(newMessage("a")); verdict(err).Reason != classify.ReasonMaxDeliveries {
			t.Errorf("the fourth delivery: %v", err)
		}
	})
}

// Feature D10: attached twice, or given the same message twice at a time, a limit neither waits for itself nor counts.
func TestTwiceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := afterCrash(t, f, LimitConfig{})
		begin, calls := time.Now(), 0
		f.leaveMarks("a", 1)
		_, err := l.Middleware(l.Middleware(func(*message.Message) ([]*message.Message, error) {
			calls++
			_, err := l.Middleware(succeed)(newMessage("a"))
			return nil, err
		}))(newMessage("a"))
		if err != nil || calls != 1 || time.Since(begin) != 0 || f.marksOf("a") != 0 || !l.room.isEmpty() {
			t.Errorf("%v, %d calls, %s, %d marks", err, calls, time.Since(begin), f.marksOf("a"))
		}
	})
}

// Feature D10: protection never stops the consumer: without a store messages are handled, and it is asked now and then.
func TestStoreDownWhileMarking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var log bytes.Buffer
		l := afterCrash(t, f, LimitConfig{Logger: watermill.NewStdLoggerWithOut(&log, false, false)})
		h := l.Middleware(succeed)
		f.set(func() { f.hang = make(chan struct{}) })
		begin := time.Now()
		for range 100 {
			if _, err := h(newMessage("a")); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("100 messages waited for %s", took)
		}
		if n := strings.Count(log.String(), "the store fails"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		close(f.hang)
		tick(2)
		if n := strings.Count(log.String(), "the store answers again"); n != 1 || !strings.Contains(log.String(), "unmarked=99") {
			t.Errorf("logged %d times: %s", n, log.String())
		}
		seen := 0
		_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) { seen = f.marksOf("b"); return nil, nil })(newMessage("b"))
		if seen != 1 {
			t.Error("the store is not asked again")
		}
	})
}

// Feature D10: while the store is away nothing is refused and nothing waits, and it is asked as often as the process beats.
func TestStoreDownAsksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var log bytes.Buffer
		l := afterCrash(t, f, LimitConfig{Logger: watermill.NewStdLoggerWithOut(&log, false, false)})
		f.leaveMarks("1", 3)
		f.set(func() { f.down = true })
		before, begin := f.calls, time.Now()
		for i := range 600 {
			if _, err := l.Middleware(succeed)(newMessage(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took, n := time.Since(begin), f.count(func() int { return f.calls })-before; took != time.Minute || n > 31 {
			t.Errorf("%d statements for 600 messages in %s", n, took)
		}
		f.set(func() { f.down = false })
		tick(1)
		for _, text := range []string{"the store fails", "the store answers again"} {
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%q is logged %d times", text, n)
			}
		}
	})
}

// Feature D10: a store whose beats succeed and whose marks fail is asked less and less.
func TestOutageComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o outage
		began := 0
		for begin := time.Now(); time.Since(begin) < 10*time.Minute; time.Sleep(time.Second) {
			if !o.lasts() {
				began++
				o.began(watermill.NopLogger{}, errDown)
			}
			o.answered(watermill.NopLogger{})
		}
		if began > 16 {
			t.Errorf("%d outages in 10 minutes", began)
		}
		time.Sleep(2 * time.Minute)
		o.answered(watermill.NopLogger{})
		time.Sleep(2 * time.Minute)
		o.began(watermill.NopLogger{}, errDown)
		if o.answered(watermill.NopLogger{}); o.lasts() {
			t.Error("the next outage is longer than it need be")
		}
	})
}

// Feature D10: a delivery that returned does not count, also where its mark could not be removed then.
func TestOwedMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := afterCrash(t, f, LimitConfig{Beat: time.Minute})
		fails := func(*message.Message) ([]*message.Message, error) {
			f.set(func() { f.down = true })
			return nil, errBoom
		}
		for range 5 {
			_, _ = l.Middleware(fails)(newMessage("a"))
			f.set(func() { f.down = false })
			if f.marksOf("a") != 1 {
				t.Fatal("the mark is not left")
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if f.marksOf("a") != 0 {
				t.Error("the mark is left after a beat")
			}
			time.Sleep(2 * time.Minute) // so that the outage is over, also one that came back soon
			synctest.Wait()
		}
		_, _ = l.Middleware(fails)(newMessage("a"))
		f.set(func() { f.down = false })
		if err := l.Close(); err != nil || f.marksOf("a") != 0 {
			t.Error("the mark is left after an orderly end", err)
		}
	})
}

// Feature D10: inside of an outer message's claim, which holds the database, a message goes unmarked.
func TestInsideOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := afterCrash(t, f, LimitConfig{})
		f.exclusive = true
		before := f.calls
		if _, err := l.Middleware(succeed)(newMessage("a")); err != nil || f.calls != before {
			t.Errorf("%d statements: %v", f.calls-before, err)
		}
		lazy := newLimit(t, LimitConfig{Store: f})
		if _, err := lazy.Middleware(succeed)(newMessage("a")); err != nil || f.calls != before {
			t.Errorf("%d statements to register: %v", f.calls-before, err)
		}
	})
}

// Feature D10: the broker's own count serves with or without a store, on every message.
func TestDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, store := range map[string]Store{"alone": nil, "with a store": newFake()} {
			count := func(msg *message.Message) (int, bool) {
				switch msg.UUID {
				case "panics":
					panic("boom")
				case "unknown":
					return 9, false
				}
				return len(msg.Payload), true
			}
			var told []Exceeded
			l := newLimit(t, LimitConfig{Store: store, Max: 3, Delivered: count, OnExceeded: func(_ context.Context, e Exceeded) { told = append(told, e) }})
			calls := 0
			h := l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })
			for id, n := range map[string]int{"panics": 9, "unknown": 9, "two": 2} {
				if _, err := h(message.NewMessage(id, make([]byte, n))); err != nil {
					t.Errorf("%s: %s: %v", name, id, err)
				}
			}
			_, err := h(message.NewMessage("three", make([]byte, 3)))
			if v := verdict(err); calls != 3 || v.Reason != classify.ReasonMaxDeliveries || !slices.Equal(told, []Exceeded{{"billing", "three", 3, true}}) {
				t.Errorf("%s: %d calls, %v, %v", name, calls, err, told)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Feature D10, promise P3: deployments, nacks and lost connections, which the broker counts too, set nothing aside by default,
// and the store's count stays what it is without the broker's.
func TestDelivered_default(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		count := func(msg *message.Message) (int, bool) { return len(msg.Payload), true }
		for name, l := range map[string]*Limit{"alone": newLimit(t, LimitConfig{Delivered: count}), "with a store": afterCrash(t, f, LimitConfig{Delivered: count})} {
			h := l.Middleware(succeed)
			if _, err := h(message.NewMessage("nacked", make([]byte, 19))); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_, err := h(message.NewMessage("back", make([]byte, 20)))
			if v := verdict(err); v.Reason != classify.ReasonMaxDeliveries || !strings.Contains(v.Description, "20 are allowed") {
				t.Errorf("%s: %v", name, err)
			}
			if name == "alone" {
				continue
			}
			f.leaveMarks("deadly", 3)
			_, err = h(message.NewMessage("deadly", make([]byte, 3)))
			if v := verdict(err); v.Reason != classify.ReasonMaxDeliveries || !strings.Contains(v.Description, "3 are allowed") {
				t.Errorf("%s: the store's count: %v", name, err)
			}
		}
	})
}

// Feature D10: marks beyond those that are remembered are forgotten, and said to be, once; those that are remembered go.
func TestTooManyDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []string{"owed", "kept"} {
			f := newFake()
			var log bytes.Buffer
			l := afterCrash(t, f, LimitConfig{Logger: watermill.NewStdLoggerWithOut(&log, false, false), QuietAfter: 24 * time.Hour})
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
			if kind == "owed" && !l.debts.owe(markOf("0"), written{3, ""}) {
				t.Error("a mark that is owed already finds no room")
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
			if n := f.count(func() int { return len(f.left) }); n != 3 {
				t.Errorf("%s: %d marks are left, not those that were forgotten", kind, n)
			}
		}
	})
}

// Feature D10: who is asked to count nothing, or nonsense, says so.
func TestConfig(t *testing.T) {
	for want, config := range map[string]LimitConfig{
		"neither Store nor Delivered": {},
		"nil pointer":                 {Store: (*sqlStore)(nil), Delivered: func(*message.Message) (int, bool) { return 0, false }},
		"LimitConfig.Max":             {Store: newFake(), Max: -1},
		"must not be negative":        {Store: newFake(), Beat: -1},
		"LimitConfig.QuietAfter":      {Store: newFake(), Beat: time.Hour},
	} {
		_, err := NewLimit(config)
		wantText(t, err, "delivery: ", want)
	}
}

// Features D10, V3: a redriven message starts anew, though the marks of the refused one were not removed before the process
// ended, and uses up a count of its own.
func TestRedriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := afterCrash(t, f, LimitConfig{})
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

// Feature D10, promise P3: what this process lived through is no death, also by a limit that it dropped without closing it.
func TestOwnMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := afterCrash(t, f, LimitConfig{})
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
// ended with one are counted. Coordinates tell them apart.
func TestWithoutIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		afterCrash(t, f, LimitConfig{})
		begin, release := time.Now(), make(chan struct{})
		var all sync.WaitGroup
		var running atomic.Int64
		h := func(*message.Message) ([]*message.Message, error) { running.Add(1); <-release; return nil, nil }
		const processes, each = 6, 3
		for range processes {
			l := newLimit(t, LimitConfig{Store: f})
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
		dead := started(t, f, LimitConfig{})
		content := dead.markOf(newMessage(""))
		for i := range 3 {
			f.left[content] = append(f.left[content], written{i + 1, fmt.Sprintf("gone%d.1", i)})
		}
		tick(1) // which shows that they are gone
		at := func(offset string) *Limit {
			return started(t, f, LimitConfig{Coordinates: func(*message.Message) string { return offset }})
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
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				l := afterCrash(t, f, LimitConfig{})
				f.leaveMarks("a", 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				msg := newMessage("a")
				msg.SetContext(ctx)
				out, err := l.Middleware(func(*message.Message) ([]*message.Message, error) {
					return []*message.Message{newMessage("out")}, nil
				})(msg)
				synctest.Wait()
				if len(out) != 1 || err != nil || f.marksOf("a") != 2 || !l.room.taken {
					t.Errorf("%d marks while outputs are published: %v", f.marksOf("a"), err)
				}
				settle(msg, l, cancel)
				synctest.Wait()
				if f.marksOf("a") != 0 || !l.room.isEmpty() || len(l.pending.visits) != 0 {
					t.Errorf("%d marks are left", f.marksOf("a"))
				}
				if name == "closed" && f.count(func() int { return len(f.processes) }) != 1 { // the one that crashed
					t.Error("not signed off")
				}
			})
		})
	}
}

// Feature D10, promise P3: what an orderly end leaves behind is signed off before the end, and what comes after leaves nothing.
func TestOrderlyEndLeavesNoMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := afterCrash(t, f, LimitConfig{})
		release := make(chan struct{})
		var all sync.WaitGroup
		hold := func(id string) {
			all.Go(func() {
				_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) { <-release; return nil, nil })(newMessage(id))
			})
			synctest.Wait()
		}
		hold("a")
		f.leaveMarks("other", 2)
		l.stop()
		if f.marksOf("a") != 0 || f.marksOf("other") != 2 || f.count(func() int { return len(f.processes) }) != 2 {
			t.Errorf("%d marks, and %d of others, and %d processes", f.marksOf("a"), f.marksOf("other"), len(f.processes))
		}
		hold("late")
		if f.marksOf("late") != 0 {
			t.Error("what was received last leaves a mark")
		}
		close(release)
		all.Wait()
		if f.count(func() int { return len(f.processes) }) != 1 || !l.room.isEmpty() {
			t.Error("not signed off in the end")
		}
	})
}

// Feature D10: a message is known by its key, else by its id, else by what it holds.
func TestMarkOf(t *testing.T) {
	l := newLimit(t, LimitConfig{Store: newFake(), Key: func(msg *message.Message) string {
		if msg.UUID == "panics" {
			panic("boom")
		}
		return msg.Metadata["key"]
	}})
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

// Feature D10: the last message signs off, when the end came while it was handled, and what comes later registers again.
func TestSignOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []string{"quiet", "marking"} {
			f := newFake()
			own := 0
			l := newLimit(t, LimitConfig{Store: f})
			if mode == "marking" {
				crash(started(t, f, LimitConfig{}))
				own = 1
			}
			processes := func() int { return f.count(func() int { return len(f.processes) }) - own }
			release := make(chan struct{})
			var all sync.WaitGroup
			for _, id := range []string{"a", "b"} {
				all.Go(func() {
					_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) { <-release; return nil, nil })(newMessage(id))
				})
			}
			synctest.Wait()
			if err := l.Close(); err != nil || processes() != 1 {
				t.Errorf("%s: signed off under running handlers: %v", mode, err)
			}
			release <- struct{}{}
			synctest.Wait()
			if processes() != 1 {
				t.Errorf("%s: signed off before the last message returned", mode)
			}
			release <- struct{}{}
			all.Wait()
			if processes() != 0 {
				t.Errorf("%s: the last message did not sign off", mode)
			}
			_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) {
				if processes() != 1 {
					t.Errorf("%s: a late message is not registered", mode)
				}
				return nil, nil
			})(newMessage("late"))
			if err := l.Close(); err != nil || processes() != 0 {
				t.Errorf("%s: not signed off again: %v", mode, err)
			}
			f.set(func() { f.processes = map[string]*fakeProcess{} })
		}
	})
}

// Feature D10: a sign-off that fails is an error of Close.
func TestSignOffFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := started(t, f, LimitConfig{})
		f.down = true
		wantText(t, l.Close(), "sign this process off", errDown.Error())
	})
}

// Feature D10: whoever closes, and whenever: while a handler runs its process is registered, and in the end it is not.
func TestSignOffUnderLoad(t *testing.T) {
	f := newFake()
	l := newLimit(t, LimitConfig{Store: f})
	h := l.Middleware(func(*message.Message) ([]*message.Message, error) {
		if rand.N(8) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		if f.count(func() int { return len(f.processes) }) != 1 {
			t.Error("handled without being registered")
		}
		return nil, nil
	})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 3000 {
				_, _ = h(newMessage("a"))
				if rand.N(4) == 0 {
					time.Sleep(rand.N(10 * time.Microsecond))
				}
			}
		})
	}
	all.Go(func() {
		for range 2000 {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if rand.N(8) == 0 { // a router begins anew
				l.closing.Store(false)
			}
		}
	})
	all.Wait()
	if err := l.Close(); err != nil || len(f.processes) != 0 {
		t.Errorf("%d processes are left: %v", len(f.processes), err)
	}
}

// Feature D10: a message that comes when the end is all but decided keeps its process registered.
func TestSignOffAtTheLastMoment(t *testing.T) {
	f := newFake()
	l := newLimit(t, LimitConfig{Store: f})
	for range 20 {
		if err := l.start(); err != nil {
			t.Fatal(err)
		}
		entered, release, handled, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error)
		l.mu.Lock()
		go func() { ended <- l.Close() }()
		eventually(t, "the end begins", l.closing.Load)
		time.Sleep(100 * time.Microsecond) // as a rule it waits for the lock then; if not, there is less to see
		go func() {
			defer close(handled)
			_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) { close(entered); <-release; return nil, nil })(newMessage("a"))
		}()
		<-entered
		l.mu.Unlock()
		if err := <-ended; err != nil || f.count(func() int { return len(f.processes) }) != 1 {
			t.Error("signed off under a handler", err)
		}
		close(release)
		<-handled
		if f.count(func() int { return len(f.processes) }) != 0 {
			t.Error("not signed off")
		}
	}
}
