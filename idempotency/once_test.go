package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var onceRows = []row{
	{"I1-once", "a key takes effect once, and hooks tell of it", (*cell).once},
	{"I1-consumers", "each consumer of each service applies the message for itself", (*cell).consumers},
}

var togetherRows = []row{
	{"I2-together", "key, writes and outputs commit together or not at all", (*cell).together},
	{"I2-wait", "a duplicate waits for the first, and sees its result", (*cell).waits},
	{"I2-wait-ends", "the wait ends with the message's context", (*cell).waitEnds},
}

// Feature I1, promise P7: three deliveries, one effect.
func (c *cell) once() {
	var applied, duplicate []idempotency.Key
	h := c.receiver(idempotency.ReceiverConfig{Hooks: idempotency.Hooks{
		OnApplied:   func(_ context.Context, k idempotency.Key) { applied = append(applied, k); panic("contained") },
		OnDuplicate: func(_ context.Context, k idempotency.Key) { duplicate = append(duplicate, k); panic("contained") },
	}}).Middleware(c.write)
	c.applies(h, newMessage("m1"), newMessage("m1"), newMessage("m2"), newMessage("m1"))
	c.rows(2, 2)
	m1, m2 := idempotency.Key{Consumer: "shop/billing", ID: "m1"}, idempotency.Key{Consumer: "shop/billing", ID: "m2"}
	if !slices.Equal(applied, []idempotency.Key{m1, m2}) || !slices.Equal(duplicate, []idempotency.Key{m1, m1}) {
		c.Errorf("the hooks saw %v applied and %v absorbed", applied, duplicate)
	}
}

// Feature I1, promise P1: the service and the consumer are a part of the key, however key and consumer are cut.
func (c *cell) consumers() {
	for _, key := range []idempotency.Key{{Consumer: "a", ID: "bc"}, {Consumer: "ab", ID: "c"}, {Consumer: "A", ID: "bc"}} {
		for _, service := range []string{"shop", "stock"} {
			store := testkit.Must(c.newStore(c.Context(), c.db, service))
			h := c.receiverOn(store, idempotency.ReceiverConfig{Consumer: key.Consumer}).Middleware(c.write)
			c.applies(h, newMessage(key.ID), newMessage(key.ID))
		}
	}
	c.rows(6, 6)
}

// Features I2, I4, promise P7: an attempt that ends in any way but success leaves nothing, and its error is unchanged;
// one that succeeds leaves everything.
func (c *cell) together() {
	r := c.receiver(idempotency.ReceiverConfig{})
	output := []*message.Message{message.NewMessage("", []byte("out"))}
	for name, fail := range failures {
		out, err := testkit.Contained(r.Middleware(c.writeAnd(fail)), newMessage("m1"))
		testkit.Check(c, out == nil && (name != "error" || err == errBoom) && (name != "nack" || err == nil) &&
			(name != "nil" || strings.Contains(err.Error(), "output 1 of 1 is nil")), "%s: %v, %v", name, out, err)
		c.rows(0, 0)
	}
	out, err := r.Middleware(c.writeAnd(func(*message.Message) ([]*message.Message, error) { return output, nil }))(newMessage("m1"))
	testkit.Require(c, err == nil && len(out) == 1, "%v %v", out, err)
	c.rows(1, 1)
	again, err := r.Middleware(c.write)(newMessage("m1"))
	testkit.Require(c, err == nil && len(again) == 1 && again[0].UUID == out[0].UUID, "%v %v", again, err)
	testkit.Equal(c, "connections are in use", c.db.Stats().InUse, 0)
}

// Feature I2: eight deliveries at once, on two pools, call the handler once; the others wait and return what it
// returned.
func (c *cell) waits() {
	var called atomic.Int64
	holding, free := make(chan struct{}), make(chan struct{})
	h := c.writeAnd(func(*message.Message) ([]*message.Message, error) {
		if called.Add(1) == 1 {
			close(holding)
			<-free
		}
		return []*message.Message{message.NewMessage("", []byte("out"))}, nil
	})
	pools := []message.HandlerFunc{
		c.receiver(idempotency.ReceiverConfig{}).Middleware(h),
		c.receiverOn(c.store(c.open(c, c.address)), idempotency.ReceiverConfig{}).Middleware(h),
	}
	ids := make(chan string, 8)
	deliver := func(pool int) {
		out, err := pools[pool](newMessage("m1"))
		if err != nil || len(out) != 1 {
			c.Error(out, err)
			ids <- ""
			return
		}
		ids <- out[0].UUID
	}
	go deliver(0)
	<-holding
	for i := range 7 {
		go deliver(i % 2)
	}
	select { // it cannot be asked whether all of them wait by now: one that does not has ended
	case id := <-ids:
		c.Errorf("a duplicate returned %q before the first had ended", id)
	case <-time.After(50 * time.Millisecond):
	}
	close(free)
	seen := map[string]bool{}
	for range 8 {
		seen[<-ids] = true
	}
	testkit.Check(c, len(seen) == 1 && called.Load() == 1, "%d calls of the handler, ids %v", called.Load(), seen)
	c.rows(1, 1)
}

// Feature I2, promise P3: who waits goes when its message does. The error names what was waited for.
func (c *cell) waitEnds() {
	r := c.receiver(idempotency.ReceiverConfig{})
	testkit.Must(r.Middleware(c.writeAnd(func(*message.Message) ([]*message.Message, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		msg := newMessage("m1") // another delivery, from within the first
		msg.SetContext(ctx)
		_, err := r.Middleware(c.write)(msg)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), `key "m1" of consumer "shop/billing"`) {
			c.Error(err)
		}
		return nil, nil
	}))(newMessage("m1")))
	c.rows(1, 1)
}
