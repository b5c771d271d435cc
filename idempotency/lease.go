package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// Lease is a key that a delivery owns for a time. Its methods commit before they return, and are safe for use by many
// goroutines. Errors wrap their causes. After any error but ErrLeaseLost the outcome may be unknown; the call may be
// repeated.
type Lease interface {
	// Fence returns the fencing token. It is positive, and higher than the token of every earlier lease of the key.
	// After a Purge of the key it begins anew with the database's clock, and can be lower if that clock was set back.
	Fence() int64

	// Recorded returns what was recorded when the key was applied with this version or a higher one. It returns nil if
	// the lease was won. A lease with a record cannot be renewed or completed.
	Recorded() *Record

	// Renew makes the lease last for its whole duration from now. It returns ErrLeaseLost if another delivery has taken
	// the key over, or if the key was removed. A lease that expired and was not taken over is still its owner's. A jump
	// of the database's clock can end a lease at once: ahead by what is left of it, or back by more than a second and
	// the time since the last renewal. Another delivery may own the key then, and the owner learns of it by Renew.
	Renew(ctx context.Context) error

	// Complete records the key as applied, with outputs, byte for byte, and with the entry's fingerprint and version.
	// If it returns ErrLeaseLost, it has changed nothing. After a success it succeeds again.
	Complete(ctx context.Context, outputs []byte) error

	// Release gives the lease up, so that the key can be leased at once. What was recorded before stays. For a lease
	// that was lost or completed it does nothing.
	Release(ctx context.Context) error
}

// ErrLeaseLost means that a lease is no longer its owner's: it expired and another delivery took the key over, or the
// key was removed. It is also the cause (context.Cause) with which a handler's context is cancelled, before another
// delivery can take the key over. If the database's clock jumps or the process is suspended, another delivery may be at
// work before that: the handler learns of it at the next renewal, up to a third of the lease later, or when the process
// wakes up.
var ErrLeaseLost = keytable.ErrLeaseLost

// minLease is the shortest lease: it is renewed after a third of it, and a request may take that long.
const minLease = time.Second

// maxLease is longer than any lease is meant to be.
const maxLease = 365 * 24 * time.Hour

// Fence returns the fencing token of the lease under which the message with this context is handled. ok is false
// without a lease, as in transaction mode. The tokens of a key rise from lease to lease, except across a Purge of the
// key if the database's clock was set back meanwhile. A receiving system can keep the highest token of each key, and
// refuse a lower one: it comes from a handler that has lost its lease.
func Fence(ctx context.Context) (token int64, ok bool) {
	s := scopeOf(ctx)
	if s == nil {
		return 0, false
	}
	l, ok := s.store.(leasingStore)
	return l.fence, ok
}

// leasingStore is the store of a scope that holds a lease: it locks nothing.
type leasingStore struct {
	Store
	fence int64
}

func (s leasingStore) same(other Store) bool { return sameStore(s.Store, other) }

// sameMode refuses a receiver inside of one of the other mode: the handler would have a transaction or a lease where it
// relies on the other.
func (r *Receiver) sameMode(ctx context.Context, msg *message.Message, key Key) error {
	for s := scopeOf(ctx); s != nil; s = s.outer {
		_, leases := s.store.(leasingStore)
		if s.msg == msg && s.entry.Key == key && sameStore(s.store, r.store) && leases != (r.config.Lease > 0) {
			return classify.Permanent(failed("claim", key,
				errors.New("the message is inside of two receivers of one store, one that leases keys and one that holds "+
					"transactions: give the handler one receiver")))
		}
	}
	return nil
}

// maxPauseLease is how long the record of a success waits at most before it is tried again.
const maxPauseLease = time.Second

// maxRefusals is how often the database must refuse a record while it takes a renewal: once may be chance.
const maxRefusals = 3

// complete records that the effects have happened. A message whose record fails is not one that failed: to retry it or
// to set it aside would be wrong, so it is put back, and finds then what became of the record. The lease is left to
// expire: it keeps others from repeating the effects while the database may come to itself. Only a record that the
// database refuses, such as outputs too large for it, is an error of the message: it would be refused each time, the
// effects before it.
func (r *Receiver) complete(c *chain.Call, key Key, k *keeper, outputs []byte) error {
	err := r.tryComplete(c, k, outputs)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLeaseLost):
		return r.lostLease(c, key, err)
	case errors.Is(err, errRefused):
		return classify.Permanent(failed("record", key, err), classify.Description(refused))
	}
	err = failed("record", key, err)
	eventAppliedUnrecorded.Write(r.config.Logger, err, fields(key))
	return r.requeue(c, err)
}

// errRefused says that the database takes what is asked of it, but not the record.
var errRefused = errors.New("the database refuses the record")

const refused = "the handler's effects have happened, but the database refuses the record of it, perhaps because of " +
	"the messages that the handler returned: redriven, the message has its effects again"

// tryComplete tries for as long as the lease lasts; once the message has gone away, no longer than a request may take.
func (r *Receiver) tryComplete(c *chain.Call, k *keeper, outputs []byte) error {
	ctx := context.WithoutCancel(c.Msg.Context())
	first := time.Now()
	refusals := 0
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, maxPauseLease) {
		err := request(ctx, "Lease.Complete", func(ctx context.Context) error { return k.lease.Complete(ctx, outputs) })
		if err == nil || errors.Is(err, ErrLeaseLost) {
			return err
		}
		if (*classify.Classifier)(nil).Classify(err).Class != classify.ClassTransient {
			began := time.Now()
			if request(ctx, "Lease.Renew", k.lease.Renew) == nil { // it is there, and takes what is not the record
				k.renewed(began)
				refusals++
			}
		}
		if refusals == maxRefusals {
			return errors.Join(errRefused, err)
		}
		if k.left() <= pause || c.Gone() && time.Since(first) > requestTimeout || !timing.Wait(ctx, pause) {
			return err
		}
	}
}

func request(ctx context.Context, name string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return safecall.Call(name, func() error { return do(ctx) })
}

// keeper renews a lease while the handler runs, from timers: a handler that is done before the first renewal costs no
// goroutine. Its time is the process's own monotonic clock, counted from before each request that the database granted.
type keeper struct {
	lease  Lease
	d      time.Duration
	logger watermill.LoggerAdapter
	ctx    context.Context // of the renewals
	cancel context.CancelFunc
	lose   func() // is called at most once

	mu      sync.Mutex
	over    time.Time // when the lease is over, unless it is renewed
	renewal *time.Timer
	expiry  *time.Timer
	stopped bool
	lost    bool
}

// keep keeps a lease that lasts d from began, until stop. The renewals have the values of ctx, and not its end.
func keep(ctx context.Context, lease Lease, began time.Time, d time.Duration, logger watermill.LoggerAdapter,
	lose func()) *keeper {
	k := &keeper{lease: lease, d: d, logger: logger, lose: lose}
	k.since(began)
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.mu.Lock() // the timers may fire before they are known
	defer k.mu.Unlock()
	k.expiry = time.AfterFunc(time.Until(k.over), k.expire)
	k.renewal = time.AfterFunc(time.Until(began.Add(d/3)), k.renew)
	return k
}

// renew has a third of the lease for its request, so that one which hangs leaves time for another.
func (k *keeper) renew() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(k.ctx, k.d/3)
	defer cancel()
	err := safecall.Call("Lease.Renew", func() error { return k.lease.Renew(ctx) })
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stopped:
	case err == nil:
		k.since(began)
		k.expiry.Reset(time.Until(k.over))
		k.renewal.Reset(time.Until(began.Add(k.d / 3)))
	case errors.Is(err, ErrLeaseLost):
		k.end(true)
	default:
		eventLeaseNotRenewed.Write(k.logger, err, nil)
		k.renewal.Reset(min(k.d/20, time.Second))
	}
}

func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stopped && !time.Now().Before(k.over) { // a renewal may have come in between
		k.end(true)
	}
}

func (k *keeper) end(lost bool) {
	k.stopped, k.lost = true, lost
	k.renewal.Stop()
	k.expiry.Stop()
	if lost {
		k.lose()
	}
}

// stop ends the renewals, and reports whether the lease was lost before. One that is under way is ignored: a renewal
// changes nothing after Complete or Release.
func (k *keeper) stop() (lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stopped {
		k.end(false)
	}
	return k.lost
}

// left is how long the lease lasts, once its renewals have ended.
func (k *keeper) left() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Until(k.over)
}

// renewed lets the lease last from began, once its renewals have ended.
func (k *keeper) renewed(began time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.since(began)
}

// since leaves a twentieth of the lease out, because timers fire late, clocks differ in pace, and a handler that is
// cancelled takes a moment to end.
func (k *keeper) since(began time.Time) { k.over = began.Add(k.d - k.d/20) }

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
		if outage.Unavailable(err) {
			return nil, r.keeper.Requeue(c, err)
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
		eventLeaseNotGivenUp.Write(r.config.Logger, err, fields(key))
	}
}

// lostLease gives a message back whose lease was lost.
func (r *Receiver) lostLease(c *chain.Call, key Key, err error) error {
	err = failed("keep the lease of", key, err)
	eventLeaseLost.Write(r.config.Logger, err, fields(key))
	r.tell("OnLeaseLost", r.config.Hooks.OnLeaseLost, c.Msg.Context(), key)
	return r.requeue(c, err)
}
