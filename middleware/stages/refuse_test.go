package stages_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// failTimes is a handler that fails the first times.
func failTimes(n *note, times int) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		if n.add(msg) <= times {
			return errBoom
		}
		return nil
	}
}

// Promises P1, P4: a stage that refuses for a moment is asked again, while the handler is not. What a stage will never
// take, in words that a rule alone knows too, is set aside with the handler's failure, and those behind it go on.
func TestStageRefuses(t *testing.T) {
	errOwnWords, notLeader := errors.New("body exceeds the quota"), errors.New("not the leader")
	rule := classify.Is(errOwnWords, classify.Verdict{TooLarge: true})
	classifier := testkit.Must(classify.New(classify.Config{Rules: []classify.Rule{rule}}))
	always := func(err error) func(int) error { return func(int) error { return err } }
	times := func(n int) func(int) error {
		return func(asked int) error {
			if asked <= n {
				return notLeader
			}
			return nil
		}
	}
	for name, row := range map[string]struct {
		refuses        func(asked int) error
		asked, handled int
		dead           bool
	}{
		"not the leader, once":  {times(1), 2, 2, false},
		"not the leader, twice": {times(2), 3, 2, false},
		"not the leader, more":  {times(3), 4, 3, false},
		"too large":             {always(fmt.Errorf("kafka: %w", classify.ErrTooLarge)), 1, 1, true},
		"refused":               {always(fmt.Errorf("amqp: %w", classify.ErrRefused)), 1, 1, true},
		"own words":             {always(errOwnWords), 1, 1, true},
		"panics":                {func(int) error { panic("a bug in the marshaler") }, 3, 1, true},
		"goexit":                {func(int) error { runtime.Goexit(); return nil }, 1, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			queue := testkit.Must(
				poison.NewQueue(&letters{}, poison.QueueConfig{Shared: observe.Shared{Classifier: classifier}}))
			s, n, asked := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil, queue), newNote(), 0
			s.broker.refuses = func(topic string, msg *message.Message) error {
				if topic == "orders" || msg.UUID != "bad" {
					return nil
				}
				asked++
				return row.refuses(asked)
			}
			s.handle("billing", "orders", func(msg *message.Message) error {
				if n.add(msg); msg.Metadata[poison.KeyRetryStage] == "" {
					return errBoom
				}
				return nil
			})
			s.passes(time.Minute, "bad", "good")
			letter, dead := s.letters.all()["bad"]
			testkit.Check(t, dead == row.dead && asked == row.asked && len(n.of("bad")) == row.handled &&
				len(n.of("good")) == 2 && len(s.broker.left()["orders"]) == 0,
				"%s: asked %d times, handled %v, %v, letter %v", name, asked, n.of("bad"), n.of("good"), letter)
			testkit.Check(t, !dead || name == "goexit" || letter.Failure.Attempts == 1 &&
				letter.Failure.Reason == classify.ReasonUnknownMaxRetries, "%s: %+v", name, letter.Failure)
		})
	}
}

// Promises P1, P4: a publisher that does whatever it likes when a message goes round does not stop its stage.
func TestStageRoundNotTaken(t *testing.T) {
	for name, refuses := range map[string]func() error{
		"refuses": func() error { return errors.New("not the leader") },
		"panics":  func() error { panic("boom") },
		"goexit":  func() error { runtime.Goexit(); return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Minute), Jitter: -1}, nil)
			s.broker.redelivers = 40 * time.Second
			var rounds atomic.Int64
			start := time.Now()
			s.broker.refuses = func(topic string, msg *message.Message) error {
				if topic != "orders" && msg.Metadata[poison.KeyRetryStage] != "" && rounds.Add(1) > 2 && time.Since(start) < 50*time.Second { // the first two are those of the handler
					return refuses()
				}
				return nil
			}
			n := newNote()
			s.handle("billing", "orders", failTimes(n, 1))
			s.passes(5*time.Minute, "1", "2")
			for _, id := range []string{"1", "2"} {
				if got := n.of(id); len(got) != 2 || got[1].at < time.Minute || got[1].at > time.Minute+30*time.Second {
					t.Errorf("%s: %s handled %v", name, id, got)
				}
			}
			testkit.Check(t, rounds.Load() <= 80 && len(s.letters.all()) == 0,
				"%s: published %d times, letters %v", name, rounds.Load(), s.letters.all())
		})
	}
}

// Conventions: hooks that panic change nothing.
func TestStageHooksPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, notified := &lines{}, make(chan string, 10)
		s := newStaging(t, stages.Config{
			Stages: stages.Delays(time.Second, time.Minute), Jitter: -1,
			Hooks: stages.Hooks{
				OnStage: func(_ context.Context, e stages.Waiting) {
					notified <- fmt.Sprintln("staged", e.Handler, e.Topic, e.StageTopic, e.Stage, e.Wait, e.Attempts, e.Verdict.Class)
					panic("OnStage")
				},
				OnReentry: func(_ context.Context, e stages.Reentry) {
					notified <- fmt.Sprintln("again", e.Handler, e.Topic, e.StageTopic, e.Stage, e.Late)
					panic("OnReentry")
				},
			},
		}, log)
		n := newNote()
		s.handle("billing", "orders", failTimes(n, 2))
		s.passes(2*time.Minute, "1")
		if len(n.of("1")) != 3 || log.count("A hook panicked") != 4 {
			t.Errorf("handled %v, logged %q", n.of("1"), log.all())
		}
		for _, want := range []string{
			"staged billing orders orders.billing.retry.1s 1 1s 1 unknown", "again billing orders orders.billing.retry.1s 1 0s",
			"staged billing orders orders.billing.retry.1m 2 1m0s 1 unknown", "again billing orders orders.billing.retry.1m 2 0s",
		} {
			got := <-notified
			testkit.Check(t, got == want+"\n", "told %q, want %q", got, want)
		}
	})
}

// Promise P1: a handler that settles its message itself, or ends its goroutine, in a stage: what it nacked comes again,
// what it acked and then failed waits for its next attempt, and Goexit is a letter.
func TestStageHandlerSettlesItself(t *testing.T) {
	for name, row := range map[string]struct {
		second  func(*message.Message) error
		handled int
		reason  string
	}{
		"ack":           {func(m *message.Message) error { m.Ack(); return nil }, 2, ""},
		"ack and fail":  {func(m *message.Message) error { m.Ack(); return errBoom }, 3, ""},
		"nack":          {func(m *message.Message) error { m.Nack(); return nil }, 3, ""},
		"nack and fail": {func(m *message.Message) error { m.Nack(); return errBoom }, 3, ""},
		"goexit":        {func(*message.Message) error { runtime.Goexit(); return nil }, 2, classify.ReasonGoexit},
		"panic":         {func(*message.Message) error { panic("boom") }, 2, classify.ReasonPanic},
		"discard":       {func(*message.Message) error { return classify.Discard(errBoom) }, 2, ""},
		"permanent":     {func(*message.Message) error { return classify.Permanent(errBoom) }, 2, classify.ReasonPermanent},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, 2*time.Second)}, nil)
			n := newNote()
			s.handle("billing", "orders", func(msg *message.Message) error {
				switch n.add(msg) {
				case 1:
					return errBoom
				case 2:
					return row.second(msg)
				}
				return nil
			})
			s.passes(time.Minute, "1")
			letter, dead := s.letters.all()["1"]
			if len(n.of("1")) != row.handled || dead != (row.reason != "") || letter.Failure.Reason != row.reason || dead && letter.Failure.Attempts != 2 {
				t.Errorf("%s: handled %d times, letter %+v", name, len(n.of("1")), letter.Failure)
			}
			testkit.Check(t, len(s.broker.left()) == 0, "%s: left: %v", name, s.broker.left())
		})
	}
}
