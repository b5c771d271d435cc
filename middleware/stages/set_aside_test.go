package stages_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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

// Promise P1: a message that its handler acked cannot be given back, so it is set aside where its stage refuses.
func TestStageRefusesAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil)
		s.handle("billing", "orders", func(msg *message.Message) error { msg.Ack(); return errBoom })
		s.broker.refuseStages(errors.New("leader not available"))
		s.passes(time.Minute, "1")
		testkit.Equal(t, "it is nowhere", len(s.letters.all()), 1)
	})
}

// Decision 6: a handler of the same name on another topic, of another router, is another consumer.
func TestStagesOfANamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, nil)
		n := newNote()
		s.handle("billing", "orders", failTimes(n, 0))
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

// Feature D12: consumers of dead letters have no stages, and are told so.
func TestDeadLettersHaveNoStages(t *testing.T) {
	s := newStaging(t, stages.Config{}, nil)
	_, err := s.stages.AddConsumerHandler(s.router, "fixer", "orders.dlq", s.broker.consumer(), func(*message.Message) error { return nil })
	testkit.Says(t, err, `"orders.dlq" is a topic of dead letters`)
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
				s.handle("billing", "orders", failTimes(n, 0))
			}
			s.passes(time.Minute, "1", "2")
			want := 1
			if extended {
				want = 2
			}
			if notified := log.Errors(); len(n.of("1")) != want || len(notified) != 1 || !strings.Contains(notified[0].Text, "without Stages.Middleware") {
				t.Errorf("extended %v: handled %v, told %v", extended, n.of("1"), notified)
			}
		})
	}
}
