package stages_test

import (
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

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
		if err == nil || s.broker.times("orders.billing.retry.1m") != 0 {
			t.Errorf("got %v, staged %d times", err, s.broker.times("orders.billing.retry.1m"))
		}
	})
}
