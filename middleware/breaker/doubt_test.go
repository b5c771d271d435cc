package breaker_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/observe"
)

// coded is an error of an unknown meaning whose code makes its kind.
type coded string

func (e coded) Error() string {
	return "code " + string(e) + ", of message " + fmt.Sprint(time.Now().UnixNano())
}
func (e coded) SQLState() string { return string(e) }

// unmarked are errors that do not say unavailable: unknown ones, time-outs, and those that ask for a long wait.
func unmarked(i int) error {
	switch i % 4 {
	case 0:
		return fmt.Errorf("handle: %w", errBoom)
	case 1:
		return classify.Transient(errBoom, classify.RetryAfter(5*time.Minute))
	case 2:
		return context.DeadlineExceeded
	}
	return coded(fmt.Sprintf("X%04d", i))
}

// Feature R17, promise P4: messages at the head of a partition that fail with an unknown error hold up those behind
// them for a minute in all, and their own attempts.
func TestPoisonAtTheHead(t *testing.T) {
	for i := range 4 {
		synctest.Test(t, func(t *testing.T) {
			const poison, good = 30, 10
			logger := new(testkit.Log)
			s := newSim(t, breaker.Config{Shared: observe.Shared{Logger: logger}})
			s.service.set(func(id string) error {
				if n, _ := strconv.Atoi(id); n < poison {
					return unmarked(i)
				}
				return nil
			})
			began := time.Now()
			s.consume(t, 1, ids(poison+good))
			took, attempts := time.Since(began), poison*5*time.Second // five attempts take less
			if len(s.dead) != poison || len(s.handled) != good || took > time.Minute+10*time.Second+attempts {
				t.Errorf("%v: %d dead, %d handled after %s", unmarked(i), len(s.dead), len(s.handled), took)
			}
			lines := logger.Lines(watermill.ErrorLogLevel, "unknown meaning")
			testkit.Check(t, len(lines) == 1 && lines[0].Fields["handler"] == "billing", "%v", lines)
		})
	}
}

// Feature R17, promise P4: a new version that fails every message with one error holds them for a minute. Then they go
// the way that they would go without a breaker, as fast. When it is rolled back, the next such outage is held again.
func TestBadDeploy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took [2]time.Duration
		var s *sim
		for i, bar := range []int{1000, 20} { // the first breaker does not open
			s = newSim(t, breaker.Config{MinMessages: bar, Window: time.Duration(bar) * 500 * time.Millisecond})
			s.takes = 3 * time.Second
			s.service.fail(errBoom)
			began := time.Now()
			s.consume(t, 10, ids(100))
			if took[i] = time.Since(began); len(s.dead) != 100 {
				t.Errorf("%d dead after %s", len(s.dead), took)
			}
		}
		testkit.Check(t, took[1] >= took[0]+30*time.Second && took[1] <= took[0]+90*time.Second,
			"it took %s without and with an outage", took)
		s.takes = 10 * time.Millisecond
		s.service.fail(nil)
		s.consume(t, 10, ids(100))
		testkit.Equal(t, "handled", len(s.handled), 100)
		s.service.fail(errBoom)
		time.AfterFunc(50*time.Second, func() { s.service.fail(nil) })
		s.dead = map[string]error{}
		s.consume(t, 10, flow(100, time.Millisecond))
		if len(s.dead) >= 20 { // some fail before the breaker opens
			t.Errorf("%d dead in an outage of 50 s after it", len(s.dead))
		}
	})
}

// Feature R17, promise P4: whatever mixture of poison, away and success: no message is held without end unless its own
// error says unavailable. Those whose errors say unavailable are all handled in the end.
func TestOnlyUnavailableHoldsWithoutEnd(t *testing.T) {
	for range 6 { // on its clock rapid soon thinks that it has tried for long enough
		synctest.Test(t, func(t *testing.T) {
			rapid.Check(testkit.InBubble{TB: t}, func(rt *rapid.T) {
				const forever = 5 * time.Hour
				s := newSim(t, breaker.Config{MaxHold: time.Duration(rapid.IntRange(2, 3600).Draw(rt, "hold in s")) * time.Second})
				what := map[string]string{}
				kinds := rapid.IntRange(1, 60).Draw(rt, "kinds")
				n := rapid.IntRange(1, 60).Draw(rt, "messages")
				failing := map[string]error{}
				for i := range n {
					id := fmt.Sprint(i)
					what[id] = rapid.SampledFrom([]string{"poison", "poison", "away", "good", "both"}).Draw(rt, "message")
					failing[id] = unmarked(rapid.IntRange(0, kinds).Draw(rt, "kind"))
				}
				began, calls := time.Now(), 0
				s.service.set(func(id string) error {
					calls++
					switch what[id] {
					case "poison":
						return failing[id]
					case "away", "both":
						if time.Since(began) > forever {
							return nil
						}
						if what[id] == "both" && calls%2 == 0 {
							return failing[id]
						}
						return errUnavailable
					}
					return nil
				})
				h := s.handler(t)
				var all sync.WaitGroup
				for id := range what {
					wait := time.Duration(rapid.IntRange(0, 100).Draw(rt, "comes after s")) * time.Second
					all.Go(func() {
						time.Sleep(wait)
						s.deliver(t.Context(), h, id)
					})
				}
				time.Sleep(4 * time.Hour)
				synctest.Wait()
				s.mu.Lock()
				for id, is := range what {
					if is == "poison" && s.dead[id] == nil || is == "good" && s.handled[id] == 0 {
						rt.Errorf("%s message %s is held: %+v", is, id, s.breaker.Health())
					}
				}
				s.mu.Unlock()
				all.Wait()
				testkit.Check(rt, len(s.handled)+len(s.dead) == n,
					"%d handled, %d dead, of %d", len(s.handled), len(s.dead), n)
			})
		})
	}
}

// Feature R17, promise P3: an outage in which half of the errors are time-outs, and the others say unavailable, is held
// for as long as it lasts.
func TestOutageWithTimeouts(t *testing.T) {
	for _, consumers := range []int{1, 10} {
		simulated(t, breaker.Config{MaxHold: time.Hour}, func(t *testing.T, s *sim) {
			calls := 0
			s.service.set(func(string) error {
				if calls++; calls%2 == 0 {
					return context.DeadlineExceeded
				}
				return errUnavailable
			})
			time.AfterFunc(50*time.Minute, func() { s.service.fail(nil) })
			s.consume(t, consumers, ids(50))
			s.checkAllHandled(t, 50)
		})
	}
}

// Feature R17: what other instances find does not hold messages again, when errors of unknown meaning have held them
// here for long enough.
func TestDoubtOfSharedOutage(t *testing.T) {
	db := databases.SQLite.New(t)
	store := openStore(t, db, 5*time.Millisecond)
	testkit.Must(db.Exec(dead))
	i := newInstance(t, store, breaker.Config{Doubt: 100 * time.Millisecond, Probe: time.Millisecond,
		MaxProbe: 5 * time.Millisecond}, &service{answer: func(string) error { return errBoom }})
	i.send(1)
	testkit.Eventually(t, "the breaker gives up", func() bool {
		return len(i.log.Lines(watermill.ErrorLogLevel, "unknown meaning")) == 1
	})
	for round := range 3 { // rounds begin and end after that
		handler := fmt.Sprint("another ", round)
		testkit.NoError(t, store.Freeze(t.Context(), handler, "a round", "test"))
		testkit.Eventually(t, "a round", func() bool {
			return strings.Contains(fmt.Sprint(i.breaker.Health()), handler)
		})
	}
	before := i.calls.Load()
	testkit.Eventually(t, "the message goes on", func() bool { return i.calls.Load() > before+10 })
	lines := i.log.Lines(watermill.ErrorLogLevel, "The breaker opened")
	testkit.Check(t, len(lines) == 1, "it opened %d times: %v", len(lines), lines)
}
