package placing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Delivery is one delivery of a message by a subscriber that can go on before the ack. It is safe for concurrent use.
type Delivery interface {
	// Placing is called when nothing is left but to place msg elsewhere. The subscriber ignores a message that is not
	// the one it delivered, and each call but the first. Placing may wait until those before msg with its key are
	// placed, or until ctx ends.
	Placing(ctx context.Context, msg *message.Message)
}

// Ordered is a Delivery whose subscriber can end one message before it takes the next.
type Ordered interface {
	// PlaceFirst is called if the message is to be placed, and its ack to be with the broker, before the subscriber
	// takes the next message, because the next one may end the process. It comes before Placing. If the message is not
	// settled within FirstFor after Placing, the subscriber goes on nevertheless: the publisher may be unavailable.
	PlaceFirst()
}

// Aside is a Delivery that knows whether anything waits for its message to be placed.
type Aside interface {
	// Aside reports whether nothing does: the subscriber has gone on, and the message had to wait for none before it.
	Aside() bool
}

// IsAside reports whether the message of ctx is placed aside, so that its publisher may take its time.
func IsAside(ctx context.Context) bool {
	d, ok := ctx.Value(Key{}).(Aside)
	return ok && d.Aside()
}

// FirstFor is how long a subscriber waits for a message that is to be placed first.
const FirstFor = 10 * time.Second

// Key is the key of the Delivery in a message's context. A context of an adapter's own type answers it with no further
// allocation.
type Key struct{}

// With returns ctx with the delivery.
func With(ctx context.Context, d Delivery) context.Context { return context.WithValue(ctx, Key{}, d) }

// Begin calls the Delivery of ctx, if there is one. It may wait for the message's turn until ctx ends: check afterwards
// whether the message went away.
func Begin(ctx context.Context, msg *message.Message) {
	if d, ok := ctx.Value(Key{}).(Delivery); ok {
		d.Placing(ctx, msg)
	}
}

// First asks the Delivery of ctx, if it can, to end its message before the subscriber takes the next one.
func First(ctx context.Context) {
	if d, ok := ctx.Value(Key{}).(Ordered); ok {
		d.PlaceFirst()
	}
}

// Laned is a Delivery whose subscriber delivers the next message of its key when this one is settled, and the chain has
// returned: a handler may ack before it has done its work. Chains makes it so.
type Laned interface {
	// Enter is called when a chain begins with msg. If it returns true, Return is called when the chain has returned.
	Enter(msg *message.Message) bool
	Return()
}

// Lanes is set when the process has a subscriber with lanes. Without one a message costs no look into its context.
var Lanes atomic.Bool

// LaneOf returns the Laned of ctx if it delivered msg, or nil. Call Return once.
func LaneOf(ctx context.Context, msg *message.Message) Laned {
	if lane, ok := ctx.Value(Key{}).(Laned); ok && lane.Enter(msg) {
		return lane
	}
	return nil
}

// Order says that a channel offers a subscriber the order of keys, in the context of Subscribe: see sequence.Offer.
type Order struct {
	// Taken is set by a subscriber that keeps the order, and for those of Spillway's own handlers, which need none.
	Taken bool
}

type orderKey struct{}

// WithOrder returns ctx with an offer.
func WithOrder(ctx context.Context, o *Order) context.Context {
	return context.WithValue(ctx, orderKey{}, o)
}

// OrderOf returns the offer in ctx, or nil.
func OrderOf(ctx context.Context) *Order {
	o, _ := ctx.Value(orderKey{}).(*Order)
	return o
}

// Chains counts the chains that are at work on the message of a delivery, which embeds it to be Laned. The zero value
// is ready.
type Chains struct {
	mu       sync.Mutex
	msg      *message.Message
	depth    int
	returned chan struct{} // closed when depth is 0 again; nil if nothing waits for it
}

// Deliver is called before msg is delivered. Chains of other messages, such as copies, do not count.
func (c *Chains) Deliver(msg *message.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.msg = msg
}

// Enter is called when a chain begins with msg.
func (c *Chains) Enter(msg *message.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.msg != msg {
		return false
	}
	c.depth++
	return true
}

// Return is called when the chain has returned.
func (c *Chains) Return() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.depth--; c.depth == 0 && c.returned != nil {
		close(c.returned)
		c.returned = nil
	}
}

var none = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Returned is closed when no chain is at work on the message. A handler may ack or nack before it has returned.
func (c *Chains) Returned() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.depth == 0 {
		return none
	}
	if c.returned == nil {
		c.returned = make(chan struct{})
	}
	return c.returned
}
