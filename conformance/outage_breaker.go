package conformance

import (
	"context"
	"fmt"
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
func (o *outageBench) count(to breaker.State) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.changes {
		if c.To == to && c.From != breaker.HalfOpen {
			n++
		}
	}
	return n
}

// untilBreaker waits until the breaker has gone to a state n times.
func (o *outageBench) untilBreaker(to breaker.State, n int) {
	o.b.Helper()
	o.b.until(fmt.Sprintf("the breaker is %s for the %d. time", to, n), func() bool { return o.count(to) >= n }, o.story)
}

// story is what the breaker did.
func (o *outageBench) story() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for i, c := range o.changes {
		all = append(all, fmt.Sprintf("%s at call %d after %s", c.To, o.begun[i],
			o.at[i].Sub(o.at[0]).Round(time.Millisecond)))
	}
	return strings.Join(all, ", ")
}

// window shortens the time after which the breaker takes a downstream that answers nothing to be away.
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
