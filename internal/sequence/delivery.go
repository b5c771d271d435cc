package sequence

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// keyRedriveCount is poison.KeyRedriveCount.
const keyRedriveCount = "x-redrive-count"

// Delivery is a message of a source on its way through the chain. The zero value is of none that keeps an order.
type Delivery struct {
	Owner     *Owner
	Lane      []byte // of the key, or nil without one
	RecordKey []byte
	Position  int64
	SentAt    time.Time

	Row     *Row // if the message is parked
	Appends bool // it is not, and those before it are
	Again   bool // its row waits on
}

// Carrier is what delivers a message in a sequence.
type Carrier interface {
	// Sequenced returns the delivery, or nil if there is no order.
	Sequenced() *Delivery
}

// Of returns the delivery of the call, or nil.
func Of(c *chain.Call) *Delivery {
	if c.Lane == nil {
		return nil
	}
	if carrier, ok := c.Lane.(Carrier); ok {
		return carrier.Sequenced()
	}
	return nil
}

// Place is where the message stands, for its key.
func (d *Delivery) Place(msg *message.Message) keytable.Place {
	if d.Row != nil {
		return d.Row.place(d.Owner.hash)
	}
	return keytable.Place{Source: d.Owner.hash, Position: d.Position,
		Redrives: int64(boundedtext.Count(msg.Metadata[keyRedriveCount]))}
}

// Park lets the message wait behind what is parked of its sequence. original is the message as it arrived, and waiting
// is what is kept of it. When Park has returned nil, the row is durable.
func (d *Delivery) Park(ctx context.Context, original, waiting *message.Message, key Key, wait time.Duration) error {
	if d.Row != nil {
		row := *d.Row
		row.Msg = waiting
		if err := d.Owner.store.Again(ctx, d.Owner.of, &row, wait); err != nil {
			return err
		}
		d.Row.Due, d.Again = time.Now().Add(wait), true
		return nil
	}
	row := &Row{Lane: d.Lane, Position: d.Position, Fingerprint: FingerprintOf(original), SentAt: d.SentAt, Key: key,
		Redrives: d.Place(original).Redrives, RecordKey: d.RecordKey, Msg: waiting}
	if row.Lane == nil {
		row.Lane = laneAlone(d.Position)
	}
	if err := d.Owner.store.Park(ctx, d.Owner.of, row, wait); err != nil {
		return err
	}
	d.Owner.parked(row.Lane, time.Now().Add(wait))
	return nil
}
