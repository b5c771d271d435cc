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
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/settings"
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

// errOwnWords is a refusal for size that a rule alone knows.
var errOwnWords = errors.New("body exceeds the quota")

// Promise P4: what a stage will never take is set aside with the handler's failure, and those behind it go on.
func TestStageNeverTakes(t *testing.T) {
	for name, refuses := range map[string]func(string, *message.Message) error{
		"too large": func(string, *message.Message) error { return fmt.Errorf("kafka: %w", classify.ErrTooLarge) },
		"refused":   func(string, *message.Message) error { return fmt.Errorf("amqp: %w", classify.ErrRefused) },
		"own words": func(string, *message.Message) error { return errOwnWords },
		"panics":    func(string, *message.Message) error { panic("a bug in the marshaler") },
		"goexit":    func(string, *message.Message) error { runtime.Goexit(); return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			classifier, err := classify.New(classify.Config{Rules: []classify.Rule{classify.Is(errOwnWords, classify.Verdict{TooLarge: true})}})
			testkit.NoError(t, err)
			queue := testkit.Must(
				poison.NewQueue(&letters{}, poison.QueueConfig{Shared: settings.Shared{Classifier: classifier}}))
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil, queue)
			s.broker.refuses = func(topic string, msg *message.Message) error {
				if topic != "orders" && msg.UUID == "bad" {
					return refuses(topic, msg)
				}
				return nil
			}
			n := newNote()
			s.handle("billing", "orders", failTimes(n, 1))
			s.passes(time.Minute, "bad", "good")
			letter, ok := s.letters.all()["bad"]
			if !ok || len(n.of("bad")) != 1 || len(n.of("good")) != 2 || len(s.broker.left()["orders"]) != 0 {
				t.Fatalf("%s: letters %v, handled %v, %v", name, s.letters.all(), n.of("bad"), n.of("good"))
			}
			if name != "goexit" && (letter.Failure.Reason != classify.ReasonUnknownMaxRetries || letter.Failure.Attempts != 1) {
				t.Errorf("%s: %+v", name, letter.Failure)
			}
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
		log, told := &lines{}, make(chan string, 10)
		s := newStaging(t, stages.Config{
			Stages: stages.Delays(time.Second, time.Minute), Jitter: -1,
			Hooks: stages.Hooks{
				OnStage: func(_ context.Context, e stages.Waiting) {
					told <- fmt.Sprintln("staged", e.Handler, e.Topic, e.StageTopic, e.Stage, e.Wait, e.Attempts, e.Verdict.Class)
					panic("OnStage")
				},
				OnReentry: func(_ context.Context, e stages.Reentry) {
					told <- fmt.Sprintln("again", e.Handler, e.Topic, e.StageTopic, e.Stage, e.Late)
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
			got := <-told
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
			for topic, left := range s.broker.left() {
				testkit.Check(t, len(left) <= 0, "%s: left in %s: %q", name, topic, left)
			}
		})
	}
}
