package crashlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

var errBoom = errors.New("boom")

func verdict(err error) classify.Verdict { return (*classify.Classifier)(nil).Classify(err) }

func wantText(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		testkit.Check(t, err != nil && strings.Contains(err.Error(), text), "error %v lacks %q", err, text)
	}
}

// afterCrash is a limit that marks.
func afterCrash(t *testing.T, f *fake, config options) *Limit {
	t.Helper()
	crash(started(t, f, options{}))
	l := started(t, f, config)
	wantMode(t, l, marking, "after a crash")
	return l
}

func (f *fake) marksOf(id string) int {
	return f.count(func() int { return len(f.left[markOf(id)]) })
}

// Feature D10: after Max deliveries that never returned the handler is not called again, whatever becomes of the
// letter; when the message is acked it starts anew.
func TestExceeded(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		var notified, unfinished []Unfinished
		l := afterCrash(t, f, options{Config: Config{Max: 2, Hooks: Hooks{
			OnExceeded:   func(_ context.Context, u Unfinished) { notified = append(notified, u); panic("hook") },
			OnUnfinished: func(_ context.Context, u Unfinished) { unfinished = append(unfinished, u); panic("hook") },
		}}})
		calls := 0
		h := l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })
		f.leaveMarks("a", 2)
		nacked, acked := newMessage("a"), newMessage("a")
		for _, msg := range []*message.Message{nacked, acked} {
			_, err := h(msg)
			if v := verdict(err); v.Class != classify.ClassPermanent || v.Reason != classify.ReasonMaxDeliveries || !strings.Contains(v.Description, "2 deliveries") {
				t.Errorf("verdict %+v", v)
			}
			wantText(t, err, "crashlimit: a: 2 deliveries")
			if msg == nacked { // the letter found no place
				msg.Nack()
				time.Sleep(defaultQuietAfter + 2*time.Minute)
				testkit.Equal(t, "marks of a message without a letter", f.marksOf("a"), 2)
				l.turn(marking)
			} else {
				chain.Placed(err)
				msg.Ack()
			}
		}
		testkit.Check(t, calls == 0 && slices.Equal(notified, []Unfinished{{"", "a", 2, false}, {"", "a", 2, false}}),
			"%d calls, told %v", calls, notified)
		testkit.Check(t, slices.Equal(unfinished, []Unfinished{{"", "a", 2, false}, {"", "a", 2, false}}),
			"unfinished %v", unfinished)
		time.Sleep(defaultQuietAfter + 2*time.Minute)
		synctest.Wait()
		testkit.Equal(t, "the marks are left long after the letter", f.marksOf("a"), 0)
		_, err := h(newMessage("a"))
		testkit.Check(t, err == nil && calls == 1, "sent again: %v, %d calls", err, calls)
	})
}

// Feature D10, promise P4: an ack that is lost with its process does not let the message end further ones: its marks
// outlive its dead letter for long. Where only content names messages, the marks go with the letter: another message
// would find them.
func TestAckOfRefusedIsLost(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		refuse := func(l *Limit, id string) {
			t.Helper()
			_, err := l.Middleware(succeed)(newMessage(id))
			testkit.Check(t, verdict(err).Reason == classify.ReasonMaxDeliveries, "%q is not refused: %v", id, err)
			chain.Placed(err)
		}
		calls := 0
		handle := func(l *Limit) {
			t.Helper()
			testkit.Is(t, testkit.Err(l.Middleware(func(*message.Message) ([]*message.Message, error) { calls++; return nil, nil })(newMessage("a"))), nil)
		}
		l := afterCrash(t, f, options{})
		f.leaveMarks("a", 3)
		refuse(l, "a")
		crash(l)
		l = started(t, f, options{})
		handle(l)
		tick(5)
		handle(l)
		testkit.Is(t, l.end(), nil)
		l = started(t, f, options{})
		handle(l)
		testkit.Equal(t, "calls while the ack may be lost", calls, 0)
		time.Sleep(defaultQuietAfter + 2*time.Minute)
		handle(l)
		testkit.Equal(t, "calls long after that", calls, 1)
		testkit.Is(t, l.end(), nil)

		crash(started(t, f, options{}))
		content := l.markOf(callOf(newMessage("")))
		for i := range 3 {
			process := fmt.Sprintf("lost%d.1", i)
			f.processes[process] = &fakeProcess{lostAt: time.Now()}
			f.left[content] = append(f.left[content], deliveries.Mark{Delivery: i + 1, Process: process})
		}
		refuse(started(t, f, options{}), "")
		testkit.Equal(t, "marks that another message would find", len(f.left[content]), 0)
	})
}

// Feature D10, promise P3: the broker's own count serves with or without a store, on every message. Deployments, nacks
// and lost connections, which the broker counts too, set nothing aside by default, and the store's count stays what it
// is.
func TestDelivered(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		count := func(msg *message.Message) (int, bool) {
			if msg.UUID == "panics" {
				panic("boom")
			}
			return len(msg.Payload), msg.UUID != "unknown"
		}
		var notified Unfinished
		hooks := Hooks{OnExceeded: func(_ context.Context, u Unfinished) { notified = u }}
		for _, limit := range []int{0, 3} {
			config := options{Config: Config{Max: limit, Delivered: count, Hooks: hooks}}
			for name, l := range map[string]*Limit{
				"alone":        newLimit(t, config),
				"with a store": afterCrash(t, f, config),
			} {
				h, most := l.Middleware(succeed), cmp.Or(limit, 20)
				for id, n := range map[string]int{"panics": most, "unknown": most, "below": most - 1} {
					_, err := h(message.NewMessage(id, make([]byte, n)))
					testkit.Check(t, err == nil, "%s: %s: %v", name, id, err)
				}
				_, err := h(message.NewMessage("back", make([]byte, most)))
				v := verdict(err)
				testkit.Check(t, v.Reason == classify.ReasonMaxDeliveries &&
					strings.Contains(v.Description, fmt.Sprint(most, " are allowed")), "%s: %v", name, err)
				testkit.Equal(t, "told", notified, Unfinished{"", "back", most, true})
				if name == "alone" {
					continue
				}
				f.leaveMarks("deadly", 3)
				_, err = h(message.NewMessage("deadly", make([]byte, 1)))
				v = verdict(err)
				testkit.Check(t, v.Reason == classify.ReasonMaxDeliveries &&
					strings.Contains(v.Description, "3 are allowed"), "%s: the store's count: %v", name, err)
			}
		}
	})
}

// Feature D10: a configuration with which nothing would be counted names the field.
func TestConfig(t *testing.T) {
	for want, config := range map[string]options{
		"Store is nil":             {},
		"Config.Max":               {Config: Config{Store: newFake(), Max: -1}},
		"Config.Heartbeat is -1ns": {Config: Config{Store: newFake(), Heartbeat: -1}},
		"1ms to 3m20s; each":       {Config: Config{Store: newFake(), Heartbeat: time.Hour}},
	} {
		_, err := build(config)
		wantText(t, err, "crashlimit: ", want)
	}
	testkit.Must(New(Config{Delivered: func(*message.Message) (int, bool) { return 0, false }}))
}
