package sequence

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// Ordering is what a channel that keeps the order of keys has for it.
type Ordering struct {
	Store *Store
	Keys  keytable.Receiver
	// Open makes of a parked message what its handler gets, and returns the number of the delay that it has waited.
	Open   func(*message.Message) (stage int)
	Logger watermill.LoggerAdapter
	Limits Limits
}

// Beside returns the store of messages that are parked beside the keys of a receiver, or an error that names what
// cannot keep an order.
func Beside(ctx context.Context, receiver keytable.Receiver) (*Store, error) {
	keys, joins, err := receiver.Keys()
	if err != nil {
		return nil, err
	}
	store, err := NewStore(ctx, keys.On.DB(), keys.Service)
	if err == nil {
		store.joins = joins
	}
	return store, err
}

type offerKey struct{}

// Offer returns ctx, for Subscribe, with the offer of an order.
func Offer(ctx context.Context, o *Ordering) (context.Context, *placing.Order) {
	offer := new(placing.Order)
	return context.WithValue(placing.WithOrder(ctx, offer), offerKey{}, o), offer
}

// Take is called by a subscriber that keeps the order of keys, with the context of Subscribe. It returns nil if no
// channel asks for one.
func Take(ctx context.Context) *Ordering {
	offer := placing.OrderOf(ctx)
	if offer == nil {
		return nil
	}
	ordering, ok := ctx.Value(offerKey{}).(*Ordering)
	offer.Taken = ok
	return ordering
}

// settleTimeout bounds one attempt to settle: another transaction may hold the key for as long as it likes.
const settleTimeout = 5 * time.Second

// Settle does what a chain.Sequence promises.
func (d *Delivery) Settle(c *chain.Call) ([]*message.Message, error) {
	o, ctx := d.Owner.Ordering, c.PlaceContext()
	key, err := o.Keys.Key(c.Ctx, c.Msg)
	if err != nil { // nothing can apply it
		return nil, nil
	}
	place := d.Place(c.Msg)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		out, applied, err := o.Keys.Settle(within, key, place)
		cancel()
		if err == nil {
			if applied {
				eventSettledApplied.Write(o.Logger, nil,
					logging.Fields{logging.Consumer: key.Consumer, logging.Key: key.ID})
			}
			return out, nil
		}
		if !errors.Is(err, keytable.ErrHeld) {
			logging.SequencesUnavailable.Write(o.Logger, err,
				logging.Fields{logging.Consumer: key.Consumer, logging.Key: key.ID})
		}
		if !timing.Wait(ctx, pause) {
			return nil, chain.Requeued(err)
		}
	}
}

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

// Of returns the delivery of the call, or nil.
func Of(c *chain.Call) *Delivery {
	d, _ := c.Sequence().(*Delivery)
	return d
}

// Place is where the message stands, for its key.
func (d *Delivery) Place(msg *message.Message) keytable.Place {
	if d.Row != nil {
		return d.Row.place(d.Owner.hash)
	}
	place := keytable.Place{Source: d.Owner.hash, Position: d.Position,
		Redrives: int64(boundedtext.Count(msg.Metadata[chain.KeyRedriveCount]))}
	if d.NoOffsets {
		place.Position = place.Redrives
	}
	return place
}

// IsKeyed reports whether the message has a key. One without is a sequence by itself.
func (d *Delivery) IsKeyed() bool {
	if d.Row != nil {
		return len(d.Row.Lane) != parked.Alone
	}
	return d.Lane != nil
}

// Park lets the message wait behind what is parked of its sequence. original is the message as it arrived, and row has
// its key and what is kept of it. If the row is held, the sequence stands until a person decides. When Park has returned
// nil, the row is durable.
func (d *Delivery) Park(ctx context.Context, original *message.Message, row *Row, wait time.Duration) error {
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
		row.Lane = parked.LaneAlone(row.Position, row.Fingerprint)
	}
	if err := o.store.Park(ctx, o.of, row, wait); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.noteLocked(row.Lane, due, load{1, int64(row.size())})
	return nil
}

// Stages and the delay store.
var (
	// each: Repair what the handler needs. `redrive sequences` names the keys.
	eventSequencesFull = logging.ErrorEvent("sequences_full",
		"As many messages are parked as may be; their partition waits for room")
	// each: nothing
	eventSequencesHaveRoom = logging.InfoEvent("sequences_have_room",
		"There is room for parked messages again; their partition goes on")
	// each: Look at the letter: its message took effect.
	eventSettledApplied = logging.InfoEvent("settled_applied",
		"A message that was dead-lettered has had its effect before, by a process that was stopped")
)
