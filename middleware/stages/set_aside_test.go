package stages_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Decision 6: a function that its user wrapped in parts before adding it is the live topic's and the stages' alike.
func TestStagesOfAWrappedFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, time.Minute)}, nil)
		n := newNote()
		retry := newRetry(t, middleware.RetryConfig{Attempts: 1})
		wrapped := newQueue(s, s.letters).Middleware(s.stages.Middleware(retry.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			n.add(msg)
			return nil, errBoom
		})))
		s.bare()
		s.handle("billing", "orders", func(msg *message.Message) error {
			_, err := wrapped(msg)
			return err
		})
		s.passes(time.Hour, "1")
		for i, h := range n.of("1") {
			testkit.Check(t, h.name == "billing", "attempt %d as %q", i+1, h.name)
		}
		if got := s.letters.all()["1"]; got.Failure.Attempts != 3 || got.Origin.Handler != "billing" {
			t.Errorf("handled %d times, letter %+v", len(n.of("1")), got)
		}
	})
}

// Promise P4: a message that its stage refuses again and again, for an unknown reason of its own, does not hold up
// those behind it for good: it is set aside.
func TestStageRefusesOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil)
		n := newNote()
		s.handle("billing", "orders", func(msg *message.Message) error {
			n.add(msg)
			if msg.UUID == "odd" {
				return errBoom
			}
			return nil
		})
		s.broker.refuse("orders.billing.retry.1s", errors.New("a header of this kind cannot be written"))
		s.run()
		s.publish("orders", "odd", "good")
		time.Sleep(4 * time.Minute)
		testkit.Check(t, len(n.of("good")) == 0 && len(s.letters.all()) == 0,
			"an outage of 4 minutes made %v, letters %v", n.of("good"), s.letters.all())
		time.Sleep(2 * time.Minute)
		s.stop()
		letter := s.letters.all()["odd"]
		if len(n.of("good")) != 1 || letter.Original == nil || !strings.Contains(letter.Failure.Description, "boom") {
			t.Errorf("behind it: %v, letter %+v", n.of("good"), letter)
		}
	})
}

// Promise P4, and its bound: an outage of the stage, whatever the publisher calls it, sets one message aside in five
// minutes and no more, however many are in flight.
func TestStageOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil)
		n := newNote()
		const handlers = 5
		var down atomic.Bool
		for i := range handlers {
			s.handle(fmt.Sprint("billing", i), fmt.Sprint("orders", i), func(msg *message.Message) error {
				if n.add(msg); down.Load() {
					return errBoom
				}
				return nil
			})
		}
		down.Store(true)
		s.broker.refuseStages(classify.Permanent(errors.New("not authorized")))
		s.run()
		for i := range handlers {
			s.publish(fmt.Sprint("orders", i), fmt.Sprint(i))
		}
		time.Sleep(299 * time.Second)
		testkit.Equal(t, "letters in less than five minutes", len(s.letters.all()), 0)
		down.Store(false)
		time.Sleep(time.Minute)
		s.stop()
		if len(s.letters.all()) != 0 || len(n.of(fmt.Sprint(handlers-1))) < 2 {
			t.Errorf("letters %v, handled %d times", s.letters.all(), len(n.of(fmt.Sprint(handlers-1))))
		}
	})
}

// Promise P1: a message that its handler acked cannot be given back, so it is set aside where its stage refuses.
func TestStageRefusesAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil)
		s.handle("billing", "orders", func(msg *message.Message) error { msg.Ack(); return errBoom })
		s.broker.refuse("orders.billing.retry.1s", errors.New("leader not available"))
		s.passes(time.Minute, "1")
		testkit.Equal(t, "it is nowhere", len(s.letters.all()), 1)
	})
}

// Decision 6: a handler of the same name on another topic, of another router, is another consumer.
func TestStagesOfANamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil)
		n := newNote()
		s.handle("billing", "orders", func(msg *message.Message) error { n.add(msg); return nil })
		s.again()
		s.router.AddConsumerHandler("billing", "parcels", s.broker.consumer(), func(msg *message.Message) error { return errBoom })
		s.run()
		s.publish("parcels", "1")
		time.Sleep(time.Minute)
		s.stop()
		testkit.Check(t, len(s.letters.all()) == 1 && len(n.of("1")) == 0,
			"letters %v, the other handled %v", s.letters.all(), n.of("1"))
	})
}

// Feature V1: a dead letter that enters at the first stage is handled at once, and has all stages before it again.
func TestRedrivenHasAllStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, time.Minute), Jitter: -1}, nil)
		n := newNote()
		s.handle("billing", "orders", func(msg *message.Message) error { n.add(msg); return errBoom })
		s.run()
		s.publish("orders", "1")
		time.Sleep(2 * time.Minute)
		letter := s.letters.all()["1"]
		topic := s.stages.ReentryTopic(letter)
		testkit.Require(t, topic == "orders.billing.retry.1s", "enters at %q", topic)
		start := time.Since(n.start)
		testkit.NoError(t, s.broker.Publish(topic, letter.Redriven("me", "1", time.Now())))
		time.Sleep(2 * time.Minute)
		s.stop()
		got, want := n.of("1"), []time.Duration{0, time.Second, 61 * time.Second}
		testkit.Require(t, len(got) == 6, "handled %v", got)
		for i, h := range got[3:] {
			at := (h.at - start).Truncate(time.Second)
			testkit.Check(t, at == want[i], "attempt %d came %s after the redrive", i+1, at)
		}
		again := s.letters.all()["1"]
		testkit.Check(t, again.Failure.Attempts == 3 && again.Redrive.Count == 1, "set aside again as %+v", again)
	})
}

// Feature D12: consumers of dead letters have no stages, and are told so.
func TestDeadLettersHaveNoStages(t *testing.T) {
	s := newStaging(t, stages.Config{}, nil)
	_, err := s.stages.AddConsumerHandler(s.router, "fixer", "orders.dlq", s.broker.consumer(), func(*message.Message) error { return nil })
	testkit.Says(t, err, `"orders.dlq" is a topic of dead letters`)
}

// What an extended handler returns has nowhere to go, in a stage as in the router, and that is an error.
func TestExtendedHandlerWithOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil)
		n := newNote()
		s.router.AddHandler("billing", "orders", s.broker.consumer(), "invoices", s.broker, func(msg *message.Message) ([]*message.Message, error) {
			if n.add(msg) == 1 {
				return nil, errBoom
			}
			return []*message.Message{newMessage("invoice")}, nil
		})
		testkit.Must(s.stages.Extend(s.router, "billing", "orders"))
		s.passes(time.Minute, "1")
		letter := s.letters.all()["1"]
		testkit.Check(t, strings.Contains(letter.Failure.Description, "publisher"), "letter %+v", letter)
	})
}

// A handler that messages reach past the stages says so once: one that was added, and one that was extended and has
// middlewares that its stages lack, if no plugin refuses that at the start.
func TestStagesPassedBy(t *testing.T) {
	for _, extended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log, n := &testkit.Log{}, newNote()
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, log)
			s.bare()
			if extended {
				origin := s.router.AddConsumerHandler("billing", "orders", s.broker.consumer(), failTimes(n, 1))
				testkit.Must(s.stages.Extend(s.router, "billing", "orders"))
				origin.AddMiddleware(newQueue(s, s.letters).Middleware, s.stages.Middleware)
			} else {
				s.handle("billing", "orders", func(msg *message.Message) error { n.add(msg); return nil })
			}
			s.passes(time.Minute, "1", "2")
			want := 1
			if extended {
				want = 2
			}
			if told := log.Errors(); len(n.of("1")) != want || len(told) != 1 || !strings.Contains(told[0].Text, "without Stages.Middleware") {
				t.Errorf("extended %v: handled %v, told %v", extended, n.of("1"), told)
			}
		})
	}
}
