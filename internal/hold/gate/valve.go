// Package gate stops a subscription from taking messages that nothing could be done with: what the handler needs is
// away.
//
// A subscriber has one Valve for each subscription, and waits at it before it takes a message or begins a transaction.
// The context of each message holds the Valve (With). A part that finds the downstream away shuts it (Of, then Shut),
// and gives the message back.
//
//	subscriber                          part
//	    │ Wait: open, one atomic load      │
//	    │ With(ctx, valve) ──── message ──▶│ Of(ctx).Shut(reopen)
//	    │ ◀──────────────────── nack ──────│
//	    │ Wait: until reopen is closed     │
//	    │ With(ctx, valve) ──── message ──▶│ the next attempt, or Shut again
//
// The part closes reopen when a message may come: for the next attempt, or because the downstream is back. Several
// parts can shut one Valve, and several handlers can: it is open when all their channels are closed. A Valve starts no
// goroutine.
//
// A message that is requeued in this way has not failed. The subscriber notes Shuts when it delivers a message. If
// the number is another one when the message comes back, the subscriber does not count the delivery, and needs no
// backoff beside the Valve.
package gate

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Valve says whether a subscription may take messages. The zero value is open. A Valve is safe for concurrent use.
type Valve struct {
	shuts  atomic.Uint64
	closed atomic.Bool // some channel of until was open when last looked at

	mu    sync.Mutex
	until []<-chan struct{}
}

// Wait returns true when the valve is open, and false if ctx ends before that. It does not look at ctx while the valve
// is open.
func (v *Valve) Wait(ctx context.Context) bool {
	for v.closed.Load() {
		reopen := v.shut()
		if reopen == nil {
			return true
		}
		select {
		case <-reopen:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Shut shuts the valve until reopen is closed. A nil channel changes nothing.
func (v *Valve) Shut(reopen <-chan struct{}) {
	if reopen == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shuts.Add(1)
	if !slices.Contains(v.until, reopen) {
		v.until = append(v.prune(), reopen)
	}
	v.closed.Store(true)
}

// IsShut reports whether Wait would wait now.
func (v *Valve) IsShut() bool { return v.closed.Load() && v.shut() != nil }

// Shuts returns how often Shut was called.
func (v *Valve) Shuts() uint64 { return v.shuts.Load() }

// shut returns a channel that keeps the valve shut, or nil: then the valve is open.
func (v *Valve) shut() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = v.prune()
	if len(v.until) == 0 {
		v.closed.Store(false)
		return nil
	}
	return v.until[0]
}

// prune returns the channels that are open. The caller holds mu.
func (v *Valve) prune() []<-chan struct{} {
	return slices.DeleteFunc(v.until, func(reopen <-chan struct{}) bool {
		select {
		case <-reopen:
			return true
		default:
			return false
		}
	})
}

type key struct{}

// With returns ctx for a message whose subscription has the valve v.
func With(ctx context.Context, v *Valve) context.Context { return context.WithValue(ctx, key{}, v) }

// Of returns the valve of the subscription that delivered the message with ctx, or nil.
func Of(ctx context.Context) *Valve {
	v, _ := ctx.Value(key{}).(*Valve)
	return v
}
