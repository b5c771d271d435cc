package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// requestTimeout bounds a request about a lease for which no message's context is good, since that may have ended.
const requestTimeout = 5 * time.Second

// lease handles a message under a lease of its key.
func (r *Receiver) lease(wait context.Context, c *chain.Call, next handler,
	entry Entry) ([]*message.Message, error) {
	key := entry.Key
	var began time.Time
	var lease Lease
	err := r.keeper.Do(wait, c, func() (err error) {
		began = time.Now()
		if lease, err = r.store.Lease(wait, entry, r.config.Lease); err != nil {
			return failed("claim", key, err)
		}
		return nil
	})
	if err != nil {
		return nil, r.unclaimed(c, key, err)
	}
	if record := lease.Recorded(); record != nil {
		return r.absorb(c, entry, record)
	}
	owed := true
	defer func() { // an error, a panic and runtime.Goexit all leave through here
		if owed {
			r.giveUp(c, key, lease)
		}
	}()
	if began, err = r.freshen(wait, lease, began); err != nil {
		err = failed("claim", key, err)
		if outage.Away(err) {
			return nil, r.keeper.GiveBack(c, err)
		}
		return nil, r.unclaimed(c, key, err)
	}
	out, kept, err := r.underLease(c, next, entry, lease, began)
	if err != nil {
		return nil, err
	}
	if kept == nil { // the handler nacked the message: it wants it again
		return nil, nil
	}
	defer kept.cancel()
	// the effects have happened: whatever becomes of the record, no other delivery may repeat them any sooner
	owed = false
	if err := r.complete(c, key, kept, encodeOutputs(out)); err != nil {
		return nil, err
	}
	r.applied(c, entry, out)
	return out, nil
}

// freshen renews a lease that took long to win, by the wait for a connection or a lock: it is counted from before the
// request, though it may have begun after it.
func (r *Receiver) freshen(ctx context.Context, lease Lease, began time.Time) (time.Time, error) {
	if time.Since(began) < r.config.Lease/3 {
		return began, nil
	}
	began = time.Now()
	if err := lease.Renew(ctx); errors.Is(err, ErrLeaseLost) {
		return began, errors.Join(ErrHeld, err)
	} else if err != nil {
		return began, err
	}
	if took := time.Since(began); took > r.config.Lease*2/3 {
		return began, fmt.Errorf("the database took %s for a request about a lease of %s: make ReceiverConfig.Lease longer",
			took, r.config.Lease)
	}
	return began, nil
}

// underLease runs the handler in a context that carries the lease, and ends with it. It returns prepared outputs and
// what has kept the lease, or nil where the handler gave the message away.
func (r *Receiver) underLease(c *chain.Call, next handler, entry Entry, lease Lease,
	began time.Time) ([]*message.Message, *keeper, error) {
	key := entry.Key
	before := c.Msg.Context()
	s := &scope{store: leasingStore{r.store, lease.Fence()}, entry: entry, msg: c.Msg, outer: scopeOf(before)}
	ctx, cancel := context.WithCancelCause(before)
	k := keep(before, lease, began, r.config.Lease, r.config.Logger.With(fields(key)), func() { cancel(ErrLeaseLost) })
	succeeded := false
	defer func() {
		k.stop()
		s.ended.Store(true)
		c.Msg.SetContext(before)
		if !succeeded {
			k.cancel()
			cancel(nil)
		}
	}()
	c.Msg.SetContext(chain.WithClaim(ctx, s))
	out, err := next(c)
	lost := k.stop()
	switch {
	case c.Nacked():
		return nil, nil, err
	case err != nil && lost: // it failed because it was cut off, and another one may be at work
		return nil, nil, r.lostLease(c, key, errors.Join(ErrLeaseLost, err))
	case err != nil:
		return nil, nil, err
	}
	c.Msg.SetContext(before)
	if out, err = r.prepare(s, out); err != nil {
		return nil, nil, err
	}
	// Outputs may have a context that comes of ctx, and are published after this: it ends with the message's own.
	succeeded = true
	if len(out) == 0 {
		cancel(nil)
	}
	return out, k, nil
}

// giveUp gives the lease of a failed attempt up, also where the message's context has ended.
func (r *Receiver) giveUp(c *chain.Call, key Key, lease Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Msg.Context()), requestTimeout)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		logging.LeaseNotGivenUp.Write(r.config.Logger, err, fields(key))
	}
}

// lostLease gives a message back whose lease was lost.
func (r *Receiver) lostLease(c *chain.Call, key Key, err error) error {
	err = failed("keep the lease of", key, err)
	logging.LeaseLost.Write(r.config.Logger, err, fields(key))
	r.tell("OnLeaseLost", r.config.Hooks.OnLeaseLost, c.Msg.Context(), key)
	return r.putBack(c, err)
}
