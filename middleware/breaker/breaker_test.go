package breaker_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Feature R12: errors that say so open the breaker after three in a row. Messages wait, uncounted, and all are handled
// when the downstream is back. While the breaker is open only probes call it.
func TestBreakerHoldsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		g := newBreaker(t, breaker.Config{Hooks: breaker.Hooks{
			OnChange: func(c breaker.Change) { changes = append(changes, string(c.To)) }}})
		down := &service{}
		h := g.Middleware(down.handle)
		down.fail(errAway)
		began := time.Now()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				_, err := h(newMessage(t.Context(), fmt.Sprint(i)))
				testkit.Check(t, err == nil, "message %d: %v", i, err)
			})
		}
		time.Sleep(10 * time.Second)
		calls := down.since(began)
		testkit.Check(t, calls >= 4 && calls <= 50+10, "%d calls during the outage", calls)
		if h := g.Health(); len(h) != 1 || h[0].Waiting < 49 || h[0].Reason != breaker.ReasonAway {
			t.Errorf("health: %+v", h)
		}
		down.fail(nil)
		back := time.Now()
		all.Wait()
		took := time.Since(back)
		testkit.Check(t, took <= 10*time.Second, "all were handled %s after it was back", took)
		time.Sleep(time.Minute)
		if h := g.Health(); len(h) != 0 {
			t.Errorf("health afterwards: %+v, changes %v", h, changes)
		}
	})
}

// Feature R12: after the first success the rate grows: 1, 2, 4 and so on in 250 ms. The messages that waited do not
// come all at once.
func TestRamp(t *testing.T) {
	simulated(t, breaker.Config{}, func(t *testing.T, s *sim) {
		wait := s.opens(t, 100)
		time.Sleep(time.Second)
		s.service.fail(nil)
		wait()
		s.checkAllHandled(t, 100)
		var ramping time.Time
		for i, c := range s.changes {
			if c.To == breaker.Ramping {
				ramping = s.at[i]
			}
		}
		for step, allowed := 0, 1; allowed < 100; step, allowed = step+1, 2*allowed+1 { // 1, 1+2, 1+2+4
			end := ramping.Add(time.Duration(step+1) * 250 * time.Millisecond)
			if n := s.service.since(ramping) - s.service.since(end); n > allowed {
				t.Errorf("%d calls in the first %d steps of the ramp, want at most %d", n, step+1, allowed)
			}
		}
	})
}

// Feature R12: a Breaker that is nil, as that of a channel without Config.Breaker, holds nothing. Its methods can be
// given to others.
func TestNilBreaker(t *testing.T) {
	var g *breaker.Breaker
	health, open, stop, plugin, middleware := g.Health, g.Open, g.Close, g.Plugin, g.Middleware
	open("billing", "a deploy")
	found := health()
	testkit.Check(t, found != nil && len(found) == 0, "%#v", found)
	stop("billing")
	handled := false
	h := middleware(func(*message.Message) ([]*message.Message, error) { handled = true; return nil, nil })
	if _, err := h(newMessage(t.Context(), "1")); err != nil || !handled {
		t.Errorf("handled %t: %v", handled, err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	testkit.Check(t, err == nil && plugin(router) == nil, "%v", err)
	testkit.Check(t, plugin(nil) != nil, "a nil router")
}

// Bad input: Open and Close of a handler that no router has hold nothing and let nothing pass, and say so. Before the
// router runs, and after it got a further handler, no name is wrong: the breaker does not know them all.
func TestOpenMisspelt(t *testing.T) {
	breaker := testkit.Must(breaker.New(breaker.Config{}))
	testkit.NoError(t, breaker.Open("later", "before the router runs"))
	testkit.NoError(t, breaker.Close("later"))
	source := gochannel.NewGoChannel(gochannel.Config{}, nil)
	var router *message.Router
	add := func(name string) {
		router.AddConsumerHandler(name, "orders", source, func(*message.Message) error { return nil })
	}
	testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		router = r
		router.AddMiddleware(breaker.Middleware)
		router.AddPlugin(breaker.Plugin)
		add("billing")
	})
	for name, err := range map[string]error{"Open": breaker.Open("biling", "a deploy"), "Close": breaker.Close("biling")} {
		if err == nil || !strings.Contains(err.Error(), name+`: no handler is named "biling"`) || !strings.Contains(err.Error(), `"billing"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	testkit.Equal(t, "", len(breaker.Health()), 0)
	for _, name := range []string{"billing", ""} {
		testkit.NoError(t, breaker.Open(name, "a deploy"))
	}
	testkit.Equal(t, "", len(breaker.Health()), 2)
	testkit.NoError(t, breaker.Close(""))
	add("shipping")
	testkit.NoError(t, router.RunHandlers(t.Context()))
	testkit.NoError(t, breaker.Open("shipping", "a deploy"))
}
