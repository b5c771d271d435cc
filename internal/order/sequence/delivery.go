package sequence

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// keyRedriveCount is poison.KeyRedriveCount.
const keyRedriveCount = "x-redrive-count"

// Delivery is a message of a source on its way through the chain. The zero value is of none that keeps an order.
type Delivery struct {
	Owner     *Owner
	Lane      []byte // of the key, or nil without one
	RecordKey []byte
	Position  int64
	NoOffsets bool // of the source: a message is known by what it holds, and by how often it was redriven
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
	place := keytable.Place{Source: d.Owner.hash, Position: d.Position,
		Redrives: int64(boundedtext.Count(msg.Metadata[keyRedriveCount]))}
	if d.NoOffsets {
		place.Position = place.Redrives
	}
	return place
}

// Park lets the message wait behind what is parked of its sequence. original is the message as it arrived, and waiting
// is what is kept of it. When Park has returned nil, the row is durable.
func (d *Delivery) Park(ctx context.Context, original, waiting *message.Message, key Key, wait time.Duration) error {
	return d.park(ctx, original, &Row{Key: key, Msg: waiting}, wait)
}

// Hold is Park for a message that failed for good: its sequence stands until a person decides.
func (d *Delivery) Hold(ctx context.Context, original, waiting *message.Message, key Key) error {
	return d.park(ctx, original, &Row{Key: key, Msg: waiting, Held: true}, 0)
}

// IsKeyed reports whether the message has a key. One without is a sequence by itself.
func (d *Delivery) IsKeyed() bool {
	if d.Row != nil {
		return len(d.Row.Lane) != alone
	}
	return d.Lane != nil
}

func (d *Delivery) park(ctx context.Context, original *message.Message, row *Row, wait time.Duration) error {
	o, due := d.Owner, time.Now().Add(wait)
	if row.Held {
		due = time.Now().Add(lookAgain)
	}
	if d.Row != nil {
		again := *d.Row
		again.Msg, again.Held = row.Msg, row.Held
		if err := o.store.Again(ctx, o.of, &again, wait); err != nil {
			return err
		}
		d.Row.Due, d.Again = due, true
		return nil
	}
	place := d.Place(original)
	row.Lane, row.Position, row.Redrives, row.Fingerprint = d.Lane, place.Position, place.Redrives, FingerprintOf(original)
	if d.NoOffsets {
		row.Fingerprint = wholeOf(original)
	}
	row.SentAt, row.RecordKey = d.SentAt, d.RecordKey
	if row.Lane == nil {
		row.Lane = laneAlone(row)
	}
	if err := o.store.Park(ctx, o.of, row, wait); err != nil {
		return err
	}
	o.parked(row.Lane, due, load{1, int64(row.size())})
	return nil
}
