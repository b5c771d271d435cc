package stages_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Feature R11: messages that come out of a stage do not all fall upon a service that still fails. They wait before
// their attempt, count none meanwhile, and go on at full speed when the service is back. None is lost, and none is
// dead-lettered.
func TestBudgetOfStages(t *testing.T) {
	const messages, backAfter = 2000, time.Minute
	for _, prefetch := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newStaging(t, stages.Config{Stages: []stages.Stage{{Delay: 5 * time.Second}, {Delay: time.Hour}}, Jitter: -1}, nil)
			s.broker.prefetch = prefetch
			retry := newRetry(t, middleware.RetryConfig{Attempts: 1, Budget: &middleware.Budget{}})
			s.chained(true, newQueue(s, s.letters), retry)
			var counts sync.Mutex
			var again, late int // calls for messages out of stages: while the service fails, and after
			done, start := newNote(), time.Now()
			s.handle("billing", "orders", func(msg *message.Message) error {
				counts.Lock()
				defer counts.Unlock()
				since := time.Since(start)
				switch {
				case since < time.Second:
					return errBoom
				case since < backAfter:
					again++
					return errBoom
				}
				done.add(msg)
				if since > backAfter+11*time.Second && since < time.Hour { // a TTL, and a slot of it
					late++
				}
				return nil
			})
			s.run()
			for i := range messages {
				s.publish("orders", fmt.Sprint(i))
			}
			time.Sleep(3 * time.Hour)
			s.stop()
			t.Logf("prefetch %d: %d attempts while the service fails, %d late", prefetch, again, late)
			if most := (100*6 + messages/5) * 5 / 4; again == 0 || again > most { // 100 in ten seconds, 20 % of live messages, and of what is tried
				t.Errorf("%d attempts while the service fails, at most %d are in the budget", again, most)
			}
			testkit.Check(t, late <= 0, "%d messages are late", late)
			if n := len(done.by); n != messages || len(s.letters.all()) > 0 {
				t.Errorf("%d messages are handled, %d are dead-lettered", n, len(s.letters.all()))
			}
		})
	}
}
