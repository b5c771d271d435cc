package stages_test

import (
	"database/sql"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
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
		testkit.Equal(t, "Error lines", len(logger.Captured()[watermill.ErrorLogLevel]), 1)
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
		testkit.Equal(t, "Error lines", len(logger.Errors()), 1)
		time.Sleep(4*time.Minute + 30*time.Second)
		testkit.Equal(t, "in less than five minutes: letters", len(s.letters.all()), 0)
		time.Sleep(time.Minute)
		testkit.Equal(t, "after five minutes: letters", len(s.letters.all()), 1)
		s.stop()
	})
}

// Promise P3: a message that goes away while it is handled, live or in a stage, goes to no stage: it comes again where
// it was, and the attempt is not counted.
func TestStagesAborted(t *testing.T) {
	for name, topic := range map[string]string{"live": "orders", "in a stage": "orders.billing.retry.1m"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Minute, time.Hour), Jitter: -1}, nil)
			s.broker.lasts = func(of string) time.Duration {
				if of == topic {
					return 2 * time.Minute
				}
				return 0
			}
			n := newNote()
			s.handle("billing", "orders", func(msg *message.Message) error {
				times := n.add(msg)
				if interrupted := 1 + len(topic)/20; times == interrupted { // the second time, in the stage
					<-msg.Context().Done()
					return errBoom
				}
				if times < 3 {
					return errBoom
				}
				return nil
			})
			s.passes(10*time.Minute, "1")
			got := n.of("1")
			if len(got) != 3 || got[2].metadata[poison.KeyAttempts] != "1" || s.broker.times("orders.billing.retry.1m") != 1 || s.broker.times("orders.billing.retry.1h") != 0 || len(s.letters.all()) != 0 {
				t.Errorf("%s: handled %v, letters %v", name, got, s.letters.all())
			}
		})
	}
}

// claim is that of an idempotent receiver on its message.
type claim struct{ msg *message.Message }

func (c claim) Holds(msg *message.Message) bool { return c.msg == msg }
func (claim) Locks(*sql.DB) bool                { return false }

// Promise P1: inside of a receiver's claim, where they do not belong, stages let errors pass outward: a message that
// waited would commit as a success.
func TestStagesInsideOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Minute)}, nil)
		var err error
		s.handle("billing", "orders", func(msg *message.Message) error {
			msg.SetContext(chain.WithClaim(msg.Context(), claim{msg}))
			_, err = s.stages.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errBoom })(msg)
			return nil
		})
		s.passes(time.Second, "1")
		testkit.Check(t, err != nil && s.broker.times("orders.billing.retry.1m") == 0,
			"got %v, staged %d times", err, s.broker.times("orders.billing.retry.1m"))
	})
}
