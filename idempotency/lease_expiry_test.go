package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var expiryRows = []row{
	{"I3-taken", "an expired lease is taken over; its owner is cancelled, gives the message back, and finds it applied", (*cell).takenOver},
	{"I3-clock", "a lease from a clock hours ahead or behind is over, the fence rises, and an applied key is recognised", (*cell).leaseClock},
	{"I3-answer-lost", "a record whose answer is lost is made sure of: the message succeeds, with one effect", func(c *cell) { c.recordCut(true) }},
	{"I3-record-cut", "a record that did not arrive is made again: the message succeeds, with one effect", func(c *cell) { c.recordCut(false) }},
	{"I3-down", "a store that is unavailable until the lease is over: given back, applied at least once, recorded once", (*cell).leaseDown},
}

// jump moves every lease's time, as a clock that jumps does.
func (c *cell) jump(by string) {
	c.Helper()
	c.exec(`UPDATE spillway_keys SET applied_at = applied_at ` + by + `, expires_at = expires_at ` + by)
}

// mostLease is a lease whose end a test waits for. A disk may stand still for two thirds of it: then a receiver refuses
// to begin.
const mostLease = 3 * time.Second

// Features I3, I4, promise P7: the other delivery applies the message while the first sleeps past its lease.
func (c *cell) takenOver() {
	lost := 0
	config := atWork(idempotency.ReceiverConfig{Lease: mostLease, Hooks: idempotency.Hooks{OnLeaseLost: func(context.Context, idempotency.Key) { lost++ }}})
	first, second := c.receiver(config), c.receiver(atWork(idempotency.ReceiverConfig{}))
	taker := &outside{c: c}
	h := &outside{c: c}
	h.then = func(msg *message.Message) error {
		c.jump("- 3600000") // the first owner's time is up; it is told when it renews
		taker.fence.Store(h.fence.Load())
		c.applies(second.Middleware(taker.handle), newMessage("m1"))
		<-msg.Context().Done()
		cause := context.Cause(msg.Context())
		testkit.Check(c, errors.Is(cause, idempotency.ErrLeaseLost), "the context ended with %v", cause)
		return context.Cause(msg.Context())
	}
	_, err := first.Middleware(h.handle)(newMessage("m1"))
	if !requeued(err) || !errors.Is(err, idempotency.ErrLeaseLost) || lost != 1 ||
		!strings.Contains(err.Error(), `keep the lease of key "m1" of consumer "shop/billing"`) {
		c.Errorf("told %d times: %v", lost, err)
	}
	out, err := first.Middleware(h.handle)(newMessage("m1"))
	testkit.Check(c, err == nil && len(out) == 1, "%v %v", out, err)
	h.called(1)
	taker.called(1)
	c.rows(0, 1)
}

// leases returns a lease of m1 that was won, with a fence above another.
func (c *cell) leases(store idempotency.Store, fenceAbove int64) idempotency.Lease {
	c.Helper()
	l, err := store.Lease(c.Context(), idempotency.Entry{Key: leaseKey}, time.Hour)
	testkit.Require(c, err == nil && l.Recorded() == nil && l.Fence() > fenceAbove,
		"%+v, %v; want a lease with a fence above %d", l, err, fenceAbove)
	return l
}

// Features I1, I3, promise P7: the process that leased is gone, and the database's clock was set right since.
func (c *cell) leaseClock() {
	store := c.store(c.db)
	var fence int64
	for _, by := range []string{"+ 7200000", "- 7200000"} { // more than the lease lasts: begun in the future, or long over
		old := c.leases(store, fence)
		c.jump(by)
		l := c.leases(store, old.Fence())
		for _, err := range []error{old.Renew(c.Context()), old.Complete(c.Context(), []byte("late"))} {
			testkit.Check(c, errors.Is(err, idempotency.ErrLeaseLost), "%s: the old owner: %v", by, err)
		}
		fence = l.Fence()
		testkit.Is(c, l.Release(c.Context()), nil)
	}
	l := c.leases(store, fence)
	testkit.NoError(c, l.Complete(c.Context(), []byte("x")))
	for _, by := range []string{"+ 7200000", "- 14400000"} { // an applied key has no time
		c.jump(by)
		again, err := store.Lease(c.Context(), idempotency.Entry{Key: leaseKey}, time.Hour)
		testkit.Require(c, err == nil && again.Recorded() != nil && string(again.Recorded().Outputs) == "x",
			"%v %v", again, err)
		claim := testkit.Must(store.Claim(c.Context(), idempotency.Entry{Key: leaseKey}))
		outputs, done := recorded(claim)
		testkit.Check(c, done && string(outputs) == "x" && claim.Release() == nil, "a transaction finds %q", outputs)
	}
}

// Features I3, I4, promise P7: the connection is cut at the COMMIT of the record.
func (c *cell) recordCut(answer bool) {
	r, l, _ := c.broken(atWork(idempotency.ReceiverConfig{}))
	h := &outside{c: c, then: func(*message.Message) error { l.cutAtCommit(answer); return nil }}
	out, err := r(h.handle)(newMessage("m1"))
	testkit.Require(c, err == nil && len(out) == 1, "%v %v", out, err)
	again, err := r(h.handle)(newMessage("m1"))
	testkit.Require(c, err == nil && len(again) == 1 && again[0].UUID == out[0].UUID, "%v %v", again, err)
	h.called(1)
	c.rows(0, 1)
}

// Features I3, promises P1, P3, P7.
func (c *cell) leaseDown() {
	r, l, _ := c.broken(atWork(idempotency.ReceiverConfig{Lease: mostLease}))
	h := &outside{c: c}
	h.then = func(*message.Message) error {
		if h.calls.Load() == 1 {
			l.cut()
		}
		return nil
	}
	_, err := r(h.handle)(newMessage("m1"))
	testkit.Check(c, requeued(err), "the message failed: %v", err)
	c.explains(err, "record")
	if _, err := r(h.handle)(newMessage("m1")); !requeued(err) {
		c.Errorf("while the store is unavailable: %v", err)
	}
	h.called(1)
	l.mend()
	eventually(c.T, "the message is applied", func() bool { // the lease may last a little longer than its owner thought
		_, err := r(h.handle)(newMessage("m1"))
		testkit.Check(c, err == nil || requeued(err), "%v", err)
		return err == nil
	})
	h.called(2)
	c.rows(0, 1)
}
