// Package graceful lets running handlers finish when their subscription ends.
//
// A subscription ends in two steps. First it takes no more messages, and what waits on behalf of a message goes back.
// The contexts of messages go on, so handlers finish, and their messages are acked or placed. The second step comes
// when all of them are settled, or after the time-out: then the contexts end too.
//
//	Close ──▶ Taking ends ──▶ handlers finish, for Timeout at most ──▶ Work ends
//
// A message's context tells Waits of the first step.
package graceful

import (
	"context"
	"sync/atomic"
	"time"
)

// Timeout is how long the handlers of a subscription may take to finish, unless With says otherwise. It is shorter than
// Watermill's CloseTimeout and the time that Kubernetes grants, 30 s each, with room for what follows. In a rebalance
// all members of a Kafka group wait for it.
const Timeout = 5 * time.Second

type timeoutKey struct{}

// With returns ctx for a call of Subscribe whose handlers may take that long to finish. Negative is not at all.
func With(ctx context.Context, timeout time.Duration) context.Context {
	return context.WithValue(ctx, timeoutKey{}, timeout)
}

// TimeoutOf returns what With says, or Timeout.
func TimeoutOf(ctx context.Context) time.Duration {
	if timeout, ok := ctx.Value(timeoutKey{}).(time.Duration); ok {
		return max(timeout, 0)
	}
	return Timeout
}

type watchKey struct{}

// Watch returns ctx for a call of Subscribe. drains is set if the subscriber lets handlers finish by itself.
func Watch(ctx context.Context, drains *atomic.Bool) context.Context {
	return context.WithValue(ctx, watchKey{}, drains)
}

// Drains is called by a subscriber that lets handlers finish, with the context of Subscribe.
func Drains(ctx context.Context) {
	if drains, ok := ctx.Value(watchKey{}).(*atomic.Bool); ok {
		drains.Store(true)
	}
}

// Drain is the end of a subscription in two steps. It is safe for concurrent use.
type Drain struct {
	// Taking is the first step: with its end no message is taken.
	Taking context.Context
	// Work is the second step. The contexts of messages are derived from it.
	Work context.Context
	// Timeout is the longest time between the two.
	Timeout time.Duration

	stop, cut context.CancelFunc
}

// Begin returns the Drain of a subscription that takes messages until ctx ends. A deadline of ctx is no deadline of a
// message. Call End once, or leave goroutines behind.
func Begin(ctx context.Context) *Drain {
	Drains(ctx)
	d := &Drain{Timeout: TimeoutOf(ctx)}
	var cancel context.CancelFunc
	d.Taking, cancel = context.WithCancel(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, cancel)
	d.stop = func() { detach(); cancel() }
	d.Work, d.cut = context.WithCancel(Until(context.WithoutCancel(ctx), d.Taking))
	context.AfterFunc(d.Taking, func() {
		if d.Timeout == 0 {
			d.cut()
			return
		}
		last := time.AfterFunc(d.Timeout, d.cut)
		context.AfterFunc(d.Work, func() { last.Stop() })
	})
	return d
}

// Stop is the first step.
func (d *Drain) Stop() { d.stop() }

// End is both steps.
func (d *Drain) End() { d.stop(); d.cut() }

type takingKey struct{}

// Until returns ctx for messages whose subscription takes no more when taking has ended.
func Until(ctx, taking context.Context) context.Context {
	return context.WithValue(ctx, takingKey{}, taking)
}

// TakingOf returns what ends when the subscription of a message with ctx takes no more. It is nil if that does not
// drain.
func TakingOf(ctx context.Context) context.Context {
	taking, _ := ctx.Value(takingKey{}).(context.Context)
	return taking
}

// Began reports whether the subscription of a message with ctx takes no more.
func Began(ctx context.Context) bool {
	taking := TakingOf(ctx)
	return taking != nil && taking.Err() != nil
}

// Waits returns ctx for a wait on behalf of its message: nothing is lost if the message goes back instead. It ends with
// ctx, and with the first step. Call the function returned when the wait is over.
func Waits(ctx context.Context) (context.Context, context.CancelFunc) {
	taking := TakingOf(ctx)
	if taking == nil {
		return ctx, func() {}
	}
	own, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(taking, cancel)
	return own, func() { stop(); cancel() }
}
