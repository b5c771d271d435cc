package breaker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

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
			if c.To == circuit.Ramping {
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
// called.
func TestNilBreaker(t *testing.T) {
	var g *breaker.Breaker
	testkit.Says(t, g.Open("billing", "a deploy"), "there is no breaker")
	testkit.NoError(t, g.Close("billing"))
	testkit.Check(t, g.Health() != nil && len(g.Health()) == 0, "%#v", g.Health())
	down := &service{}
	_, err := g.Middleware(down.handle)(newMessage(t.Context(), "1"))
	testkit.Check(t, err == nil && down.count() == 1, "%d calls: %v", down.count(), err)
	testkit.NoError(t, g.Plugin(testkit.Must(message.NewRouter(message.RouterConfig{}, nil))))
	testkit.Says(t, g.Plugin(nil), "the router is nil")
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
