package placing

import "context"

// Order is what a channel that keeps the order of keys offers a subscriber, in the context of Subscribe.
type Order struct {
	// Of is a *sequence.Ordering, of which this package knows nothing.
	Of any
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
