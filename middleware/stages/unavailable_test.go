package stages_test

import (
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// Promises P1, P3, P4, decisions 13, 17, 21: while the stages' broker is unavailable, or nacks, a failed message is
// held: a broker may count nacks. What no outage explains is requeued. After five minutes, and not before, a message is
// set aside unless the broker is unavailable, and those behind it go on.
func TestStageRefusesForLong(t *testing.T) {
	for name, row := range map[string]struct {
		err         error
		held, aside bool // handled again every 20 seconds at most; set aside at last
	}{
		"away":    {hold.NewUnavailable("no connection"), true, false},
		"nacks":   {outage.NewNack("nack"), true, true},
		"unknown": {classify.Permanent(errors.New("a header of this kind cannot be written")), false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, n, letters := &testkit.Log{}, newNote(), map[bool]int{true: 1}[row.aside]
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, log)
			s.handle("billing", "orders", func(msg *message.Message) error {
				if n.add(msg); msg.UUID == "odd" && msg.Metadata[poison.KeyRetryStage] == "" {
					return errBoom
				}
				return nil
			})
			s.broker.refuseStages(row.err)
			s.run()
			s.publish("orders", "odd", "good")
			time.Sleep(299 * time.Second)
			testkit.Check(t, len(n.of("good")) == 0 && len(s.letters.all()) == 0 && (len(n.of("odd")) < 20) == row.held,
				"%s: in less than five minutes: odd %d times, letters %v", name, len(n.of("odd")), s.letters.all())
			testkit.Check(t, !row.held || len(log.Errors()) == 1, "%s: %v", name, log.Errors())
			time.Sleep(time.Minute)
			testkit.Equal(t, name+", after five minutes: letters", len(s.letters.all()), letters)
			s.broker.refuseStages(nil)
			time.Sleep(time.Minute)
			s.stop()
			testkit.Equal(t, name+", in the end: letters", len(s.letters.all()), letters)
			last := n.of("odd")[len(n.of("odd"))-1]
			testkit.Check(t, len(n.of("good")) == 1 && (last.metadata[poison.KeyRetryStage] == "") == row.aside,
				"%s: odd came last as %v, good %v", name, last, n.of("good"))
		})
	}
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
