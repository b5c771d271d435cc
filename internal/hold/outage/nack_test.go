package outage

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promises P3, P4, decision 21: while a broker nacks everything, one message in each maxRefusal is let go.
func TestNackingBroker(t *testing.T) {
	for name, row := range map[string]struct {
		lasts, lost time.Duration // of the outage, and when the connection was lost; 0 is not
		nacked      func(error) bool
		release     int
		abreast     int
	}{
		"not for minutes":          {maxRefusal - time.Second, 0, Nacked, 0, 20},
		"for minutes":              {maxRefusal + 2*time.Second, 0, Nacked, 1, 20},
		"for half an hour":         {30*time.Minute + time.Second, 0, Nacked, 6, 20},
		"one by one":               {30*time.Minute + time.Second, 0, Nacked, 5, 1},
		"away in between":          {2*maxRefusal - 2*time.Second, maxRefusal - time.Second, Nacked, 0, 20},
		"with nowhere else to go":  {15 * time.Minute, 0, nil, 0, 20},
		"as long as it takes once": {maxRefusal, 0, Nacked, 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger, began := watermill.NewCaptureLogger(), time.Now()
				g, nack := New(Config{Logger: logger, Nacked: row.nacked}), NewNack("nack")
				var mu sync.Mutex
				release, through := 0, 0
				ask := func() error {
					since := time.Since(began)
					switch {
					case since >= row.lasts:
						return nil
					case row.lost > 0 && since >= row.lost && since < row.lost+2*time.Second:
						return errUnavailable
					}
					return nack
				}
				var all sync.WaitGroup
				handle := func(id string) {
					c := call(t.Context(), id)
					err := g.Do(t.Context(), c, ask)
					for ; requeued(err); err = g.Do(t.Context(), c, ask) {
						c.AddHeld(-c.Held()) // as when it comes again
						time.Sleep(100 * time.Millisecond)
					}
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						through++
						return
					}
					release++
					for range 4 { // one that is let go waits for no turn
						at := time.Now()
						testkit.Check(t, g.Do(t.Context(), c, ask) == nack && time.Since(at) == 0,
							"held for another %s", time.Since(at))
					}
				}
				for worker := range row.abreast {
					all.Go(func() {
						for i := worker; i < 20; i += row.abreast {
							time.Sleep(time.Duration(i) * time.Millisecond)
							handle(strconv.Itoa(i))
						}
					})
				}
				all.Wait()
				testkit.Check(t, release == row.release && through == 20-row.release,
					"%d were let go, not %d; %d came through", release, row.release, through)
				time.Sleep(time.Minute)
				lines := logger.Captured()
				testkit.Check(t, len(lines[watermill.ErrorLogLevel]) == 1 && len(lines[watermill.InfoLogLevel]) == 1,
					"logged %v", lines)
			})
		})
	}
}
