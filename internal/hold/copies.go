package hold

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// kept is what is remembered of a message that a part held, or holds. It keeps neither the message nor its context
// alive: a payload can be large.
type kept struct {
	since        time.Time
	until        time.Time // when it is forgotten
	long         bool      // it was held for long enough to come again; guarded by the Redelivery's lock
	acked, nackd <-chan struct{}
	session      <-chan struct{} // closed when the message's context ends
	logger       watermill.LoggerAdapter
}

const (
	// keptFor is how long a message is remembered after it was held. A copy of it can be in its client's buffer.
	keptFor = 2 * time.Minute
	// mostKept bounds the messages that are remembered for each subscriber.
	mostKept = 10_000
)

// keeping is when the last message of this process is forgotten, in nanoseconds of the Unix epoch. Until then chains
// look for copies.
var keeping atomic.Int64

// Repeats reports whether the broker can deliver a message again that is held: a session alone decides with other
// subscribers, and an ack in a transaction can be undone.
func (r *Redelivery) Repeats() bool {
	return r != nil && !r.session && !r.InTransaction && (!r.Known || r.After > 0)
}

// long is how long a message must be held at least to come again: a message is held for half of a known time, and in
// parts.
func (r *Redelivery) long() time.Duration {
	if r.Known {
		return min(r.After/4, minLearned)
	}
	return minLearned
}

// Holding notes that a part begins to hold c's message, for at most the given time. Settle then knows copies of the
// message that its broker delivers again. Call the returned function when the hold ends. Messages of stages are known
// by the stages.
func Holding(c *chain.Call, most time.Duration, logger watermill.LoggerAdapter) (ended func()) {
	r := RedeliveryIn(c.Ctx)
	if !r.Repeats() || c.Reentry != nil || chain.TransactionOf(c.Ctx) != nil {
		return func() {}
	}
	of, ok := c.Fingerprint()
	if !ok {
		return func() {}
	}
	one := r.keep(of, c, most, logger)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if now := time.Now(); now.Sub(one.since) >= r.long() {
			one.long = true
			r.alert = now.Add(keptFor)
		}
	}
}

func (r *Redelivery) keep(of chain.Fingerprint, c *chain.Call, most time.Duration,
	logger watermill.LoggerAdapter) *kept {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.kept[of]
	if one == nil || one.acked != c.Msg.Acked() {
		if one != nil && one.outcome() == isHeld {
			return one // it is a copy that was not seen as one
		}
		one = &kept{since: now, acked: c.Msg.Acked(), nackd: c.Msg.Nacked(), session: c.Ctx.Done(), logger: logger}
		r.remember(of, one)
	}
	one.until = now.Add(most + keptFor)
	for until := one.until.UnixNano(); ; {
		if last := keeping.Load(); last >= until || keeping.CompareAndSwap(last, until) {
			return one
		}
	}
}

// remember notes a message, and forgets it again when its time is over. The caller holds mu.
func (r *Redelivery) remember(of chain.Fingerprint, one *kept) {
	if r.kept == nil {
		r.kept = make(map[chain.Fingerprint]*kept)
	}
	r.makeRoom()
	r.kept[of] = one
	if !r.sweeping {
		r.sweeping = true
		time.AfterFunc(keptFor, r.sweep)
	}
}

// sweep forgets what is over. It comes again for as long as there is something to wait for. A message that is held for
// longer than it should be stays, without a timer of its own.
func (r *Redelivery) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.sweeping = false
	for of, one := range r.kept {
		switch {
		case !now.After(one.until):
			r.sweeping = true
		case one.outcome() != isHeld:
			delete(r.kept, of)
		}
	}
	if len(r.kept) == 0 {
		r.kept = nil // a map keeps its room
	}
	if r.sweeping {
		time.AfterFunc(keptFor, r.sweep)
	}
}

// makeRoom forgets some messages if there are many: if it can, those that are settled. The caller holds mu.
func (r *Redelivery) makeRoom() {
	if len(r.kept) < mostKept {
		return
	}
	for of, one := range r.kept {
		if one.outcome() != isHeld {
			delete(r.kept, of)
		}
		if len(r.kept) < mostKept*9/10 {
			return
		}
	}
	for of := range r.kept {
		if delete(r.kept, of); len(r.kept) < mostKept*9/10 {
			return
		}
	}
}

type fate int

const (
	isHeld fate = iota // it is held, or handled
	isAcked
	isRequeued
	isGone // its session ended: the broker does not hear of it
)

func (k *kept) outcome() fate {
	select {
	case <-k.acked:
		return isAcked
	default:
	}
	select {
	case <-k.session:
		return isGone
	default:
	}
	select {
	case <-k.nackd:
		return isRequeued
	default:
		return isHeld
	}
}

var errCopy = errors.New("the message came again while it was held, and is requeued as it was")

// Settle reports whether c's message is a copy of one that is held here, or was lately. If that one is held or handled,
// Settle waits for its outcome. The copy is settled in the same way: it is done, or requeued. Settle returns false if
// the message is none, or takes the place of a copy whose session has ended.
func Settle(c *chain.Call) (o chain.Outcome, settled bool) {
	if last := keeping.Load(); last == 0 || c.Reentry != nil {
		return o, false
	} else if time.Now().UnixNano() > last {
		keeping.CompareAndSwap(last, 0)
		return o, false
	}
	r := RedeliveryIn(c.Ctx)
	if !r.Repeats() || chain.TransactionOf(c.Ctx) != nil {
		return o, false
	}
	of, ok := c.Fingerprint()
	if !ok {
		return o, false
	}
	ctx := c.WaitContext()
	for first := true; ; first = false {
		one := r.copyOf(of, c)
		if one == nil {
			return o, false
		}
		switch one.outcome() {
		case isAcked:
			return o, true
		case isRequeued:
			return chain.OutcomeOf(chain.Requeued(errCopy)), true
		case isGone:
			continue // copyOf forgets it
		}
		if first {
			r.CameAgain(one.logger, time.Since(one.since), logging.Fields{
				logging.Handler: message.HandlerNameFromCtx(c.Ctx), logging.Topic: message.SubscribeTopicFromCtx(c.Ctx),
				logging.MessageID: c.ID(),
			})
		}
		select {
		case <-one.acked:
		case <-one.nackd:
		case <-one.session:
		case <-ctx.Done():
			return chain.OutcomeOf(chain.Requeued(errCopy)), true
		}
		if one.outcome() == isRequeued {
			return chain.OutcomeOf(chain.Requeued(errCopy)), true
		}
	}
}

// copyOf returns the message that is remembered with this fingerprint. If that one was requeued or is gone, c's
// message takes its place. After a long hold all messages are remembered for some time.
func (r *Redelivery) copyOf(of chain.Fingerprint, c *chain.Call) *kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, now := r.kept[of], time.Now()
	if one == nil && now.Before(r.alert) {
		r.remember(of, &kept{since: now, until: r.alert, long: true, acked: c.Msg.Acked(), nackd: c.Msg.Nacked(),
			session: c.Ctx.Done(), logger: watermill.NopLogger{}})
	}
	if one == nil || one.acked == c.Msg.Acked() {
		return nil
	}
	switch became := one.outcome(); {
	case became == isAcked && (!one.long || now.After(one.until)): // else a producer's duplicate
		delete(r.kept, of)
		return nil
	case became == isRequeued || became == isGone:
		r.remember(of, &kept{since: now, until: one.until, long: one.long, acked: c.Msg.Acked(), nackd: c.Msg.Nacked(),
			session: c.Ctx.Done(), logger: one.logger})
		return nil
	}
	return one
}

// CameAgain notes that the broker delivered a message again that was held here for a time. If messages are held for
// less from now on, it logs that, once per subscriber.
func (r *Redelivery) CameAgain(logger watermill.LoggerAdapter, after time.Duration, of logging.Fields) {
	if r.Learn(after) {
		r.notified.Do(func() {
			of[logging.After], of[logging.Held] = after, r.MaxHold(0)
			eventHeldCopy.Write(logger, errRedelivered, of)
		})
	}
}

var errRedelivered = errors.New("another instance would have handled it too: give the subscriber a method " +
	"RedeliveryTime that returns the broker's redelivery time, or set a part's MaxHold to half of that at most")

// Outages, and the breaker.
var (
	// once: Give the subscriber a `RedeliveryTime`, or hold for less.
	eventHeldCopy = logging.ErrorEvent("held_copy",
		"A broker delivered a message again that is held here; it is not handled twice here, and messages of this "+
			"subscriber are held for less from now on")
)
