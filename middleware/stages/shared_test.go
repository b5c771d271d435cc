package stages_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// Promise P1: a message of another handler, in a stage topic that is not declared as shared, is seen by no other:
// it is set aside when it is due, not handled by the wrong handler. Where a topic's name has the handler in it, the
// stage does not look.
func TestStagesForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, row := range map[string]struct {
			naming          naming.Scheme
			shared          bool
			handler, origin string
			handled, dead   int
		}{
			"own":                        {perTopic, false, "billing", "orders", 1, 0},
			"other handler":              {perTopic, false, "shipping", "orders", 0, 1},
			"other topic":                {oneForAll, false, "billing", "parcels", 0, 1},
			"nobody's":                   {perTopic, false, "", "", 1, 0},
			"shared: own":                {perTopic, true, "billing", "orders", 1, 0},
			"shared: other handler":      {perTopic, true, "shipping", "orders", 0, 0},
			"shared: other topic":        {oneForAll, true, "billing", "parcels", 0, 0},
			"shared: nobody's":           {perTopic, true, "", "", 1, 0},
			"per handler: other handler": {naming.Scheme{}, false, "shipping", "orders", 1, 0},
			"per handler, shared":        {naming.Scheme{}, true, "shipping", "orders", 1, 0},
		} {
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second), Naming: row.naming, SharedTopics: row.shared}, nil)
			n := newNote()
			s.handle("billing", "orders", failTimes(n, 0))
			s.run()
			s.staged(row.naming.StageTopic(naming.Source{Topic: "orders", Handler: "billing", Delay: time.Second}), "1", map[string]string{
				poison.KeyOriginalHandler: row.handler, poison.KeyOriginalTopic: row.origin, poison.KeyRetryDueAt: in(time.Second),
			})
			time.Sleep(time.Minute)
			s.stop()
			letters := s.letters.all()
			testkit.Check(t, len(n.of("1")) == row.handled && len(letters) == row.dead,
				"%s: handled %v, letters %v", name, n.of("1"), letters)
			if l, ok := letters["1"]; ok && (l.Failure.Class != classify.ClassPermanent || !strings.Contains(l.Failure.Description, "another handler")) {
				t.Errorf("%s: %+v", name, l.Failure)
			}
		}
	})
}

var (
	perTopic  = naming.Scheme{Stage: "{topic}.retry.{delay}", Reentry: "{topic}.retry"}
	oneForAll = naming.Scheme{Stage: "waiting.{delay}"}
)

// Feature R5: stages of equal delay share a topic, and a message goes through both; a retired one is consumed and never
// entered, and what comes out of it goes on in the next that there is.
func TestStagesEqualAndRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		s := newStaging(t, stages.Config{Jitter: -1, Stages: []stages.Stage{
			{Delay: 5 * time.Second}, {Delay: 5 * time.Second}, {Delay: 2 * time.Second, Retired: true}, {Delay: 5 * time.Second, Retired: true}, {Delay: time.Minute},
		}}, log)
		n := newNote()
		s.handle("billing", "orders", failTimes(n, 9))
		s.run()
		s.publish("orders", "1")
		s.staged("orders.billing.retry.2s", "2", map[string]string{poison.KeyRetryStage: "1", poison.KeyRetryDueAt: in(2 * time.Second)})
		s.staged("orders.billing.retry.2s", "3", map[string]string{poison.KeyRetryStage: "9", poison.KeyRetryDueAt: in(2 * time.Second)})
		time.Sleep(time.Hour)
		s.stop()
		wantTimes(t, n.of("1"), 0, 5*time.Second, 10*time.Second, 70*time.Second)
		wantTimes(t, n.of("2"), 2*time.Second, 7*time.Second, 67*time.Second)
		wantTimes(t, n.of("3"), 2*time.Second)
		if s.broker.times("orders.billing.retry.2s") != 2 || len(s.letters.all()) != 3 || log.count("a stage that was removed") != 1 {
			t.Errorf("retired: %d times, letters %v, %q", s.broker.times("orders.billing.retry.2s"), s.letters.all(), log.all())
		}
	})
}

func wantTimes(t testing.TB, got []handled, want ...time.Duration) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("handled %v, want at %v", got, want)
		return
	}
	for i := range want {
		if late := got[i].at - want[i]; late < 0 || late > time.Second {
			t.Errorf("attempt %d at %s, want %s", i+1, got[i].at, want[i])
		}
	}
}

// Promise P1: a message whose origin is told otherwise than the router has it, by an Origin of the user's own, would be
// passed by by all handlers of a shared topic, its own too. It is set aside in place of that.
func TestStagesSharedTopicsWithOriginOfOnesOwn(t *testing.T) {
	for _, origin := range []poison.Origin{{Handler: "the biller"}, {Topic: "prod.orders"}, {Topic: "orders", Handler: "billing"}} {
		synctest.Test(t, func(t *testing.T) {
			queue, err := poison.NewQueue(testkit.Nowhere{}, poison.QueueConfig{Origin: func(*message.Message) poison.Origin { return origin }})
			testkit.NoError(t, err)
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second), Naming: perTopic, SharedTopics: true}, nil, queue)
			n := newNote()
			s.handle("billing", "orders", failTimes(n, 1))
			s.passes(time.Minute, "1")
			own := origin.Topic == "orders"
			if _, dead := s.letters.all()["1"]; dead == own || len(n.of("1")) != 1 && !own || len(n.of("1")) != 2 && own {
				t.Errorf("%+v: handled %d times, letters %v", origin, len(n.of("1")), s.letters.all())
			}
		})
	}
}
