package stages_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
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
