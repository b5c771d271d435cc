package outageguard_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/middleware/outageguard"
)

// Feature R12: errors that say so open the guard after three in a row. Messages wait, uncounted, and all are handled when the
// downstream is back. While the guard is open only probes call it.
func TestGuardHoldsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		g := newGuard(t, outageguard.Config{OnChange: func(c outageguard.Change) { changes = append(changes, c.To.String()) }})
		down := &service{}
		h := g.Middleware(down.handle)
		down.fail(errAway)
		began := time.Now()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if _, err := h(newMessage(t.Context(), fmt.Sprint(i))); err != nil {
					t.Errorf("message %d: %v", i, err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		calls := down.since(began)
		if calls < 4 || calls > 50+10 {
			t.Errorf("%d calls during the outage", calls)
		}
		if h := g.Health(); len(h) != 1 || h[0].Waiting < 49 || h[0].Reason != outageguard.ReasonAway {
			t.Errorf("health: %+v", h)
		}
		down.fail(nil)
		back := time.Now()
		all.Wait()
		if took := time.Since(back); took > 10*time.Second {
			t.Errorf("all were handled %s after it was back", took)
		}
		time.Sleep(time.Minute)
		if h := g.Health(); len(h) != 0 {
			t.Errorf("health afterwards: %+v, changes %v", h, changes)
		}
	})
}
