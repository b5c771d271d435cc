package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/downstream"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// outageBench is a bench with a handler that calls a downstream, and a breaker of that handler.
type outageBench struct {
	b        *bench
	server   *downstream.Server
	client   *downstream.Client
	calls    atomic.Int64 // begun by the handler, those that were refused too
	failures atomic.Int64 // attempts whose failure came to Retry
	stagings atomic.Int64

	mu      sync.Mutex
	changes []breaker.Change
	begun   []int64     // the calls until each change
	failed  []int64     // the failures that had come to Retry
	at      []time.Time // of each change
}

// outage is a bench with a downstream, which is up. A call without an answer ends after timeout.
func (b *bench) outage(timeout time.Duration) *outageBench {
	b.Helper()
	server, err := downstream.New()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	client := downstream.NewClient(server.Addr(), timeout)
	b.Cleanup(client.Close)
	b.begin()
	b.dead, b.live = b.publisher(), b.publisher()
	return &outageBench{b: b, server: server, client: client}
}

// guarded gives the channel the breaker, and notes what the breaker and the stages do.
func (o *outageBench) guarded(c *spillway.Config) {
	c.Breaker = &breaker.Config{Hooks: breaker.Hooks{OnChange: func(change breaker.Change) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.failed = append(o.failed, o.failures.Load())
		o.changes, o.begun, o.at = append(o.changes, change), append(o.begun, o.calls.Load()), append(o.at, time.Now())
	}}}
	if c.Stages != nil {
		c.Stages.Hooks.OnStage = func(context.Context, stages.Waiting) { o.stagings.Add(1) }
	}
	c.Retry.Attempts = 3
	c.Retry.Hooks.OnAttempt = func(_ context.Context, a middleware.Attempt) {
		if a.Err != nil {
			o.failures.Add(1)
		}
	}
}

// handle calls the downstream, then applies the message.
func (o *outageBench) handle(msg *message.Message) ([]*message.Message, error) {
	o.calls.Add(1)
	if err := o.client.Call(msg.Context(), msg.UUID); err != nil {
		return nil, err
	}
	return nil, o.b.apply(msg)
}

func (o *outageBench) set(mode downstream.Mode) {
	o.b.Helper()
	if err := o.server.Set(mode); err != nil {
		o.b.Fatal(err)
	}
}

// count returns how often the breaker went to a state. A probe that failed opens it no further time.
func (o *outageBench) count(to circuit.State) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.changes {
		if c.To == to && c.From != circuit.HalfOpen {
			n++
		}
	}
	return n
}

// untilBreaker waits until the breaker has gone to a state n times.
func (o *outageBench) untilBreaker(to circuit.State, n int) {
	o.b.Helper()
	o.b.until(fmt.Sprintf("the breaker is %s for the %d. time", to, n), func() bool { return o.count(to) >= n }, o.history)
}

// story is what the breaker did.
func (o *outageBench) history() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for i, c := range o.changes {
		all = append(all, fmt.Sprintf("%s at call %d after %s", c.To, o.begun[i],
			o.at[i].Sub(o.at[0]).Round(time.Millisecond)))
	}
	return strings.Join(all, ", ")
}

// window shortens the time after which the breaker takes a downstream that answers nothing to be unavailable.
func (o *outageBench) window(w time.Duration) func(*spillway.Config) {
	return func(c *spillway.Config) { c.Breaker.Window = w }
}

// handlePermanent is handle for messages some of which can never succeed.
func (o *outageBench) handlePermanent(msg *message.Message) ([]*message.Message, error) {
	if strings.HasPrefix(msg.UUID, "permanent") {
		return nil, classify.Permanent(errNever)
	}
	return o.handle(msg)
}

// outageVariable names the environment variable with the time that an outage of rows R12 lasts, such as "30s". Default:
// 3 s, with fewer messages a second.
const outageVariable = "SPILLWAY_CONFORMANCE_OUTAGE"

// outageLasts returns how long a downstream is unavailable, and how many messages a second come meanwhile. Rows judge
// by counts: on a slow machine fewer come. In process all of them are in hand at once, and each waits for SQLite's one
// writer, so fewer come there too.
func (b *bench) outageLasts() (lasts time.Duration, rate int) {
	b.Helper()
	given := os.Getenv(outageVariable)
	if given == "" {
		return 3 * time.Second, 40
	}
	lasts, err := time.ParseDuration(given)
	if err != nil || lasts <= 0 {
		b.Fatalf("%s is %q: give a duration, such as 30s", outageVariable, given)
	}
	if b.target.CreateTopic == nil {
		return lasts, 50
	}
	return lasts, 500
}

// traffic publishes messages with ids of their own, beside whatever happens to them. A message that the broker refuses
// is published again, so it may be there twice.
type traffic struct {
	b    *bench
	pub  message.Publisher
	mu   sync.Mutex
	ids  []string
	over chan struct{}
	done sync.WaitGroup
}

// traffic publishes rate messages a second until it is stopped, which the end of the row does too. name gives the id of
// the i-th message.
func (b *bench) traffic(rate int, name func(i int) string) *traffic {
	b.Helper()
	t := &traffic{b: b, pub: b.publisher(), over: make(chan struct{})}
	t.done.Go(func() {
		begun := time.Now()
		for i := 0; ; i++ {
			select {
			case <-t.over:
				return
			case <-time.After(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(rate)))):
			}
			if !t.publish(name(i)) {
				return
			}
		}
	})
	b.Cleanup(func() { t.stop() })
	return t
}

// publish is false if the traffic was stopped before the broker took the message.
func (t *traffic) publish(id string) bool {
	for t.pub.Publish(t.b.topic, newMessage(id)) != nil {
		select {
		case <-t.over:
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ids = append(t.ids, id)
	return true
}

// stop returns the ids that were published, in their order.
func (t *traffic) stop() []string {
	t.mu.Lock()
	select {
	case <-t.over:
	default:
		close(t.over)
	}
	t.mu.Unlock()
	t.done.Wait()
	return t.sent()
}

func (t *traffic) sent() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.ids)
}

// goodOnly names messages that can succeed.
func goodOnly(i int) string { return fmt.Sprintf("good-%06d", i) }

// untilAllApplied waits until each id took effect, as long as any does within patience.
func (b *bench) untilAllApplied(ids []string) {
	b.Helper()
	last, since := -1, time.Now()
	for ; ; time.Sleep(50 * time.Millisecond) {
		effects := b.effects()
		if !slices.ContainsFunc(ids, func(id string) bool { return effects[id] == 0 }) {
			return
		}
		if len(effects) != last {
			last, since = len(effects), time.Now()
		}
		if time.Since(since) > patience {
			missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return effects[id] > 0 })
			b.Fatalf("%d of %d messages took no effect, and none does within %s: %q; set aside %d, failed attempts %d",
				len(missing), len(ids), patience, missing[:min(len(missing), 10)], b.placed.Load(), b.attempts.Load())
		}
	}
}
