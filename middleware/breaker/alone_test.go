package breaker_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/observe"
)

// hasNext stands for stages that have a next one, or not.
type hasNext bool

func (hasNext) Has(*chain.Call) bool { return true }

func (n hasNext) HasNext(*chain.Call, classify.Verdict) bool { return bool(n) }

// Feature R12: one message alone keeps the breaker open for Config.Doubt. Then it goes to its next stage, and the next
// message shows that it was a false alarm. So does each further one.
func TestAloneWithStages(t *testing.T) {
	simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
		var stage []string
		h := s.staged(t, &stage)
		s.service.set(unavailableFor("poison"))
		began := time.Now()
		for n := range 3 {
			s.deliver(t.Context(), h, fmt.Sprint("poison ", n))
			took := time.Since(began)
			testkit.Check(t, len(stage) == n+1 && took >= time.Minute && took <= 70*time.Second, "%v after %s", stage, took)
			s.deliver(t.Context(), h, fmt.Sprint("good ", n))
			time.Sleep(time.Second)
			began = time.Now()
		}
		testkit.Check(t, len(s.dead) == 0 && len(s.handled) == 6, "%d handled, dead %v", len(s.handled), s.dead)
	})
}

// Feature R12: a message that was given back because its hold ended is not to blame for an outage that ended before it
// came again. In the next outage the messages are held too. If the same message fails alone again, it is to blame.
func TestHoldThatEndsIsNoBlame(t *testing.T) {
	simulated(t, breaker.Config{MaxHold: 4 * time.Second}, func(t *testing.T, s *sim) {
		var stage []string
		h := s.staged(t, &stage)
		var counted []string
		one := func(id string) bool { // one delivery, which may give the message back
			_, err := h(newMessage(t.Context(), id))
			if err != nil && !chain.IsAborted(err) {
				counted = append(counted, id)
				return true
			}
			return err == nil
		}
		for outage := range 3 {
			first, next := fmt.Sprint("first ", outage), fmt.Sprint("next ", outage)
			s.service.fail(errUnavailable)
			time.AfterFunc(6*time.Second, func() { s.service.fail(nil) })
			testkit.Require(t, !one(first), "%v  was counted, or handled in the outage", first)
			for !one(next) {
			}
			for !one(first) {
			}
			time.Sleep(30 * time.Second)
		}
		testkit.Check(t, len(stage)+len(counted) == 0, "staged %v, counted %v", stage, counted)

		s.service.set(unavailableFor("poison"))
		for deliveries := 1; !one("poison"); deliveries++ {
			one(fmt.Sprint("good ", deliveries))
			testkit.Require(t, deliveries != 10, "a message that fails alone is given back again and again")
		}
	})
}

// Feature R12: at most two messages of an outage go to a stage because they were alone, however long the outage lasts.
func TestFewAreAlone(t *testing.T) {
	simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
		var stage []string
		h := s.staged(t, &stage)
		s.service.fail(errUnavailable)
		time.AfterFunc(6*time.Hour, func() { s.service.fail(nil) })
		for i := range 10 {
			s.deliver(t.Context(), h, fmt.Sprint(i))
		}
		if len(stage) != 2 || len(s.handled) != 10 || len(s.dead) != 0 { // a stage takes with success here
			t.Errorf("staged %v, handled %d, dead %v", stage, len(s.handled), s.dead)
		}
	})
}

// Feature R12: without stages a message that fails alone is held, and an Error line names it once.
func TestAloneWithoutStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := new(testkit.Log)
		s := newSim(t, breaker.Config{Shared: observe.Shared{Logger: logger}})
		s.service.fail(errUnavailable)
		time.AfterFunc(10*time.Minute, func() { s.service.fail(nil) })
		s.deliver(t.Context(), s.handler(t), "alone")
		s.checkAllHandled(t, 1)
		lines := logger.Lines(watermill.ErrorLogLevel, "One message alone")
		testkit.Check(t, len(lines) == 1 && lines[0].Fields["message_id"] == "alone", "%v", lines)
	})
}
