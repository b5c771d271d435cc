package outage

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Decision 21: what a broker that is reached says of itself is Away, and is known as such; what else is away is not.
func TestNacked(t *testing.T) {
	for name, row := range map[string]struct {
		err            error
		away, isNacked bool
	}{
		"nack":                 {fmt.Errorf("a: %w", NewNack("nack")), true, true},
		"marked":               {classify.Transient(NewNack("nack")), true, true},
		"kafka, unexplained":   {sarama.ErrUnknown, true, true},
		"kafka, quota":         {fmt.Errorf("a: %w", sarama.KError(89)), true, true},
		"kafka, few replicas":  {sarama.ErrNotEnoughReplicas, true, false},
		"kafka, the message's": {sarama.ErrMessageSizeTooLarge, false, false},
		"our own":              {NewError("away"), true, false},
		"unknown":              {errors.New("boom"), false, false},
		"nil":                  {nil, false, false},
		"joined":               {errors.Join(errors.New("b"), NewNack("nack")), true, true},
	} {
		if away, nacked := Away(row.err), Nacked(row.err); away != row.away || nacked != row.isNacked {
			t.Errorf("%s: away %t, nacked %t", name, away, nacked)
		}
	}
}

// Promises P3, P4, decision 21: a broker nacks everything, for shorter than maxRefusal or for good, with a loss of its
// connection in between or without. Messages are held, and given back and held again, as in any outage. One message in
// each maxRefusal is let go.
func TestNackingBroker(t *testing.T) {
	for name, row := range map[string]struct {
		lasts, lost time.Duration // of the outage, and when the connection was lost; 0 is not
		nacked      func(error) bool
		letGo       int
	}{
		"not for minutes":          {maxRefusal - time.Second, 0, Nacked, 0},
		"for minutes":              {maxRefusal + 2*time.Second, 0, Nacked, 1},
		"for half an hour":         {30*time.Minute + time.Second, 0, Nacked, 6},
		"away in between":          {2*maxRefusal - 2*time.Second, maxRefusal - time.Second, Nacked, 0},
		"with nowhere else to go":  {15 * time.Minute, 0, nil, 0},
		"as long as it takes once": {maxRefusal, 0, Nacked, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger, began := watermill.NewCaptureLogger(), time.Now()
				g, nack := New(Config{Logger: logger, Nacked: row.nacked}), NewNack("nack")
				var mu sync.Mutex
				letGo, through := 0, 0
				ask := func() error {
					since := time.Since(began)
					switch {
					case since >= row.lasts:
						return nil
					case row.lost > 0 && since >= row.lost && since < row.lost+2*time.Second:
						return errAway
					}
					return nack
				}
				var all sync.WaitGroup
				for i := range 50 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						c := call(t.Context(), strconv.Itoa(i))
						err := g.Do(t.Context(), c, ask)
						for ; givenBack(err); err = g.Do(t.Context(), c, ask) {
							c.AddHeld(-c.Held()) // as when it comes again
							time.Sleep(100 * time.Millisecond)
						}
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							through++
							return
						}
						letGo++
						for range 4 { // one that is let go waits for no turn
							if at := time.Now(); g.Do(t.Context(), c, ask) != nack || time.Since(at) > 0 {
								t.Errorf("held for another %s", time.Since(at))
							}
						}
					})
				}
				all.Wait()
				testkit.Check(t, letGo == row.letGo && through == 50-row.letGo,
					"%d were let go, not %d; %d came through", letGo, row.letGo, through)
				time.Sleep(time.Minute)
				if lines := logger.Captured(); len(lines[watermill.ErrorLogLevel]) != 1 || len(lines[watermill.InfoLogLevel]) != 1 {
					t.Errorf("logged %v", lines)
				}
			})
		})
	}
}

// Decision 17: with one message at a time, a queue that nacks for good is one outage in the log, and not one for each
// message let go.
func TestNackedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := watermill.NewCaptureLogger()
		g, nack := New(Config{Logger: logger, Nacked: Nacked}), NewNack("nack")
		for i := range 5 {
			c := call(t.Context(), strconv.Itoa(i))
			for givenBack(g.Do(t.Context(), c, func() error { return nack })) {
				c.AddHeld(-c.Held())
			}
			for range 4 { // as Outputs insists
				time.Sleep(time.Second)
				testkit.Equal(t, "", g.Do(t.Context(), c, func() error { return nack }), nack)
			}
		}
		if lines := logger.Captured(); len(lines[watermill.ErrorLogLevel]) != 1 || len(lines[watermill.InfoLogLevel]) != 0 {
			t.Errorf("logged %v", lines)
		}
	})
}
