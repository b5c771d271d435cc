package ordered

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// line delivers a message.
type line struct {
	placing.Chains
	order sequence.Delivery
}

func (l *line) Sequence() chain.Sequence                  { return &l.order }
func (l *line) Placing(context.Context, *message.Message) {}

// What Ordered adds to a message whose key is not parked, while other keys are, and while none is.
func BenchmarkNotParked(b *testing.B) {
	store, err := sequence.NewStore(b.Context(), databases.SQLite.New(b), "shop")
	if err != nil {
		b.Fatal(err)
	}
	p := New(Config{Delays: []time.Duration{time.Second}, Store: store})
	source := parked.Source{Topic: "orders"}
	for n := range 100 {
		row := &sequence.Row{Lane: fmt.Appendf(nil, "other-%d", n), Position: int64(n), Fingerprint: []byte{1}, Msg: message.NewMessage("", nil)}
		if err := store.Park(b.Context(), source, row, time.Hour); err != nil {
			b.Fatal(err)
		}
	}
	empty, busy := p.Ordering().Own(parked.Source{Topic: "empty"}), p.Ordering().Own(source)
	if !busy.Load(b.Context()) {
		b.Fatal("not loaded")
	}
	placing.Lanes.Store(true)
	nothing := chain.LinkOf(func(next chain.Handler) chain.Handler {
		return func(c *chain.Call) ([]*message.Message, chain.Outcome) { return next(c) }
	})
	for name, c := range map[string]struct {
		owner *sequence.Owner
		parts []chain.Part
	}{"without": {nil, []chain.Part{nothing}}, "none parked": {empty, []chain.Part{p.Outer, p.Parking, p.Inner}},
		"others parked": {busy, []chain.Part{p.Outer, p.Parking, p.Inner}}} {
		b.Run(name, func(b *testing.B) {
			key := []byte("customer-4711")
			l := &line{order: sequence.Delivery{Owner: c.owner, Lane: key}}
			msg := message.NewMessage("id", []byte("payload"))
			msg.Metadata.Set("a", "b")
			msg.SetContext(placing.With(context.Background(), l))
			l.Deliver(msg)
			handle := chain.EnterParts(c.parts...)(func(*message.Message) ([]*message.Message, error) { return nil, nil })
			b.ReportAllocs()
			for b.Loop() {
				if c.owner != nil {
					l.order.Appends = c.owner.Waits(l.order.Lane)
					_ = parked.LaneOf(key)
					_ = l.order.Place(msg) // as the receiver does
				}
				if _, err := handle(msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
