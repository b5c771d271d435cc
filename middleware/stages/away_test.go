package stages_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Promises P1, P3, decisions 13, 17: while the stages' broker is away a failed message is held rather than nacked again
// and again, which a broker may count and end. The outage is one Error line, and one Info line when it is over.
func TestStageBrokerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := watermill.NewCaptureLogger()
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, logger)
		var calls atomic.Int32
		s.handle("billing", "orders", func(*message.Message) error {
			if calls.Add(1) == 1 {
				return errBoom
			}
			return nil
		})
		s.broker.refuseStages(outage.NewError("no connection"))
		s.run()
		s.publish("orders", "m")
		time.Sleep(15 * time.Second)
		if n := calls.Load(); n != 1 || len(s.letters.all()) != 0 {
			t.Errorf("while the broker is away: handled %d times, letters %v", n, s.letters.all())
		}
		s.broker.refuseStages(nil)
		time.Sleep(5 * time.Second)
		s.stop()
		if n := calls.Load(); n != 2 || len(s.letters.all()) != 0 {
			t.Errorf("in the end: handled %d times, letters %v", n, s.letters.all())
		}
		if lines := logger.Captured()[watermill.ErrorLogLevel]; len(lines) != 1 {
			t.Errorf("%d Error lines: %v", len(lines), lines)
		}
	})
}

// Promises P3, P4, decision 21: a broker that nacks what goes into a stage is held like one that is away: the message
// is not nacked again and again. After five minutes of nothing else the message is dead-lettered.
func TestStageBrokerNacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := &testkit.Log{}
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, logger)
		var calls atomic.Int32
		s.handle("billing", "orders", func(*message.Message) error {
			calls.Add(1)
			return errBoom
		})
		s.broker.refuseStages(outage.NewNack("nack"))
		s.run()
		s.publish("orders", "m")
		time.Sleep(15 * time.Second)
		if n := calls.Load(); n != 1 || len(s.letters.all()) != 0 {
			t.Errorf("in the first seconds: handled %d times, letters %v", n, s.letters.all())
		}
		if lines := logger.Errors(); len(lines) != 1 {
			t.Errorf("%d Error lines: %v", len(lines), lines)
		}
		time.Sleep(4*time.Minute + 30*time.Second)
		if letters := s.letters.all(); len(letters) != 0 {
			t.Errorf("in less than five minutes: letters %v", letters)
		}
		time.Sleep(time.Minute)
		if letters := s.letters.all(); len(letters) != 1 {
			t.Errorf("after five minutes: letters %v", letters)
		}
		s.stop()
	})
}
