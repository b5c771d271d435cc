package fleet_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/console/internal/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func stopped(n int) (s fleet.State) {
	s.Stopped = n
	return s
}

func everyone(*http.Request) (bool, string, error) { return true, "", nil }

func look(services ...*fleet.Service) []fleet.Seen {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	return fleet.Look(r, services, time.Second)
}

// Feature V11: a service that never answers holds up no other, and is not asked again until it has answered.
func TestOneThatHangs(t *testing.T) {
	for _, of := range []string{"access", "read"} {
		t.Run(of, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				release := make(chan struct{})
				hang := func() { calls.Add(1); <-release }
				well := fleet.New(everyone, func(context.Context) (fleet.State, error) { return stopped(7), nil })
				ill := fleet.New(func(*http.Request) (bool, string, error) {
					if of == "access" {
						hang()
					}
					return true, "", nil
				}, func(context.Context) (fleet.State, error) {
					if of == "read" {
						hang()
					}
					return stopped(8), nil
				})
				why := func(s fleet.Seen) error { return errors.Join(s.Unknown, s.Err) }
				begun := time.Now()
				seen := look(ill, well)
				testkit.Equal(t, "it took", time.Since(begun), time.Second)
				testkit.Require(t, errors.Is(why(seen[0]), fleet.ErrLate) && seen[1].State.Stopped == 7, "%+v", seen)
				begun, before := time.Now(), runtime.NumGoroutine()
				for range 20 {
					seen = look(well, ill)
					testkit.Require(t, errors.Is(why(seen[1]), fleet.ErrLate) && seen[0].State.Stopped == 7, "%+v", seen)
				}
				synctest.Wait()
				if took := time.Since(begun); took != 20*time.Second || calls.Load() != 1 || runtime.NumGoroutine() > before+10 {
					t.Errorf("after %v there are %d calls and %d goroutines, before %d", took, calls.Load(), runtime.NumGoroutine(), before)
				}
				close(release)
				synctest.Wait()
				seen = look(ill)
				testkit.Check(t, seen[0].State.Stopped == 8 && why(seen[0]) == nil, "it is back: %+v", seen)
			})
		})
	}
}

// Feature V11: many look at once. Each has its answer, and a service is read for one of them at a time.
func TestManyLookAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		s := fleet.New(everyone, func(context.Context) (fleet.State, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(10 * time.Millisecond)
			return stopped(7), nil
		})
		answers := make(chan fleet.Seen)
		for range 20 {
			go func() { answers <- look(s)[0] }()
		}
		for range 20 {
			seen := <-answers
			testkit.Check(t, seen.State.Stopped == 7 && seen.Err == nil, "%+v", seen)
		}
		testkit.Check(t, most.Load() == 1, "%d reads at once", most.Load())
	})
}

// Feature V11: a panic, an error or an end in one service's function is the answer of that service alone.
func TestOneThatFails(t *testing.T) {
	state := func(context.Context) (fleet.State, error) { return stopped(7), nil }
	reads := 0
	counted := func(context.Context) (fleet.State, error) { reads++; return fleet.State{}, nil }
	seen := look(
		fleet.New(func(*http.Request) (bool, string, error) { panic("on fire") }, counted),
		fleet.New(func(*http.Request) (bool, string, error) { return true, "", errors.New("away") }, counted),
		fleet.New(func(*http.Request) (bool, string, error) { return false, "not you", nil }, counted),
		fleet.New(everyone, func(context.Context) (fleet.State, error) { panic("on fire") }),
		fleet.New(func(r *http.Request) (bool, string, error) {
			r.Header.Set("Role", "all")
			return true, "", r.ParseForm()
		}, state),
		fleet.New(func(r *http.Request) (bool, string, error) {
			return r.Header.Get("Role") == "", "", r.ParseForm()
		}, state),
	)
	for i, want := range []struct{ may, unknown, failed bool }{{unknown: true}, {unknown: true}, {}, {may: true, failed: true}, {may: true}, {may: true}} {
		got := seen[i]
		testkit.Check(t, (got.Unknown != nil || got.May == want.may) && (got.Unknown != nil) == want.unknown &&
			(got.Err != nil) == want.failed && (got.State.Stopped == 7) == (want.may && !want.failed),
			"%d: %+v", i, got)
	}
	testkit.Check(t, seen[2].Note == "not you" && reads == 0, "%+v, %d reads", seen[2], reads)
}
