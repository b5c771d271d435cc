package idempotency_test

import (
	"errors"
	"time"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// lease leases the key, or finds what a claim would find.
func (k *modelKey) lease(t *rapid.T) {
	version := k.draw(t)
	l, err := k.store.Lease(k.context(t), k.entry(version), time.Hour)
	var record *idempotency.Record
	if err == nil {
		record = l.Recorded()
	}
	k.found(t, version, record, err)
	if record != nil {
		ctx := k.context(t)
		if l.Fence() != 0 || l.Renew(ctx) == nil || l.Complete(ctx, nil) == nil || l.Release(ctx) != nil {
			t.Fatal("what was recorded is a lease too")
		}
	}
	if err != nil || record != nil {
		return
	}
	if l.Fence() <= k.fence {
		t.Fatalf("%s: fence %d after %d", k.key.ID, l.Fence(), k.fence)
	}
	k.taken()
	k.leased, k.holder, k.wanted, k.fence, k.old = true, l, version, l.Fence(), false
}

// renew also renews what has expired, as long as it was not taken.
func (k *modelKey) renew(t *rapid.T) {
	testkit.NoError(t, k.holder.Renew(k.context(t)))
	k.over, k.old = false, false
}

// complete also records what has expired. Where the answer is lost it is called again.
func (k *modelKey) complete(t *rapid.T) {
	outputs := rapid.SampledFrom([]string{"", "three", "four"}).Draw(t, "outputs")
	cut := rapid.SampledFrom([]int32{0, 0, 1, 2}).Draw(t, "cut")
	k.cutNext.Store(cut)
	err := k.holder.Complete(k.context(t), []byte(outputs))
	testkit.Require(t, (err != nil) == (cut > 0) && !errors.Is(err, idempotency.ErrLeaseLost),
		"complete: %v, cut %d", err, cut)
	for range 2 { // of those that succeeded too
		if err := k.holder.Complete(k.context(t), []byte(outputs)); err != nil {
			t.Fatal("complete again: ", err)
		}
	}
	testkit.NoError(t, k.holder.Release(k.context(t)))
	k.apply(k.wanted, outputs)
	k.leased, k.over, k.holder = false, false, nil
}

// giveUp leaves a row that any delivery may take.
func (k *modelKey) giveUp(t *rapid.T) {
	testkit.NoError(t, k.holder.Release(k.context(t)))
	k.taken()
	k.leased, k.over = true, true
}

// expire lets two hours pass.
func (k *modelKey) expire(t *rapid.T) {
	k.move(t, 2*time.Hour)
	k.over = true
}

// late is an owner of before, who does not know yet.
func (k *modelKey) late(t *rapid.T) {
	l := rapid.SampledFrom(k.lost).Draw(t, "owner")
	err := l.Renew(k.context(t))
	testkit.Require(t, errors.Is(err, idempotency.ErrLeaseLost), "renew a lost lease: %v", err)
	err = l.Complete(k.context(t), []byte("late"))
	testkit.Require(t, errors.Is(err, idempotency.ErrLeaseLost), "complete a lost lease: %v", err)
	testkit.NoError(t, l.Release(k.context(t)))
}
