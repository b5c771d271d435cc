package middleware_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// Feature I4: what asked for it is told when all outputs were accepted, at once or after refusals, and never when the
// source was set aside or given back.
func TestOutputsTellOfPublishing(t *testing.T) {
	for name, c := range map[string]struct {
		refusals int
		err      error
		dead     error
		want     int
	}{
		"accepted":              {want: 1},
		"accepted later":        {refusals: 2, err: errBoom, want: 1},
		"set aside":             {refusals: 99, err: classify.Permanent(errBoom)},
		"letter refused":        {refusals: 99, err: classify.Permanent(errBoom), dead: errBoom},
		"one of two is refused": {refusals: 4, err: errBoom, want: 1},
	} {
		told := 0
		dead := &publisher{refuse: func(string, *message.Message) error { return c.dead }}
		o := newOutputs(t, dead, middleware.OutputsConfig{Backoff: every(time.Millisecond)})
		pub := &publisher{refuse: refusing("a", c.refusals, c.err)}
		asks := func(next chain.Handler) chain.Handler {
			return func(call *chain.Call) ([]*message.Message, chain.Outcome) {
				call.OnPublished(func() {
					if len(pub.ids()) < 2 {
						t.Errorf("%s: told before the outputs %q were accepted", name, pub.ids())
					}
					told++
				})
				return next(call)
			}
		}
		out := testkit.Must(chain.Enter(chain.StepOf(o), asks)(producing("a", "b"))(newMessage("1")))
		if err := decorate(t, o, pub).Publish("invoices", out...); (err != nil) != (c.dead != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if told != c.want {
			t.Errorf("%s: told %d times", name, told)
		}
	}
}
