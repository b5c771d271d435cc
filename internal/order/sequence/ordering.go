package sequence

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// Ordering is what a channel that keeps the order of keys has for it.
type Ordering struct {
	Store *Store
	Keys  Keys
	// Open makes of a parked message what its handler gets, and returns the number of the delay that it has waited.
	Open   func(*message.Message) (stage int)
	Logger watermill.LoggerAdapter
	Limits Limits
}

// Keys is a receiver, as sequences see it.
type Keys interface {
	// Open returns the store of parked messages beside the keys, or an error that names what cannot keep an order.
	Open(ctx context.Context) (*Store, error)
	// Key returns how a message is recognised, or an error if it has no key: then it never has an effect.
	Key(ctx context.Context, msg *message.Message) (Key, error)
	// Settle writes that a message ended without an effect. If it had one, it returns the outputs.
	Settle(ctx context.Context, key Key, place keytable.Place) (out []*message.Message, applied bool, err error)
}

// Keyed makes the type that embeds it a receiver to KeysOf.
type Keyed struct{ keys Keys }

// KeyedBy returns the Keyed of a receiver.
func KeyedBy(keys Keys) Keyed { return Keyed{keys} }

func (k Keyed) sequences() Keys { return k.keys }

// KeysOf returns the keys of a receiver.
func KeysOf(receiver interface{ sequences() Keys }) Keys { return receiver.sequences() }

// Take is called by a subscriber that keeps the order of keys, with the context of Subscribe. It returns nil if no
// channel asks for one.
func Take(ctx context.Context) *Ordering {
	offer := placing.OrderOf(ctx)
	if offer == nil {
		return nil
	}
	ordering, ok := offer.Of.(*Ordering)
	offer.Taken = ok
	return ordering
}

// settleTimeout bounds one attempt to settle: another transaction may hold the key for as long as it likes.
const settleTimeout = 5 * time.Second

// Settle writes that the message of c ended without an effect, before the next one of its key may begin. It returns the
// outputs of a message that had one after all. An error gives the message back: its context has ended.
func Settle(c *chain.Call) ([]*message.Message, error) {
	d := Of(c)
	if d == nil {
		return nil, nil
	}
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
				logging.SettledApplied.Write(o.Logger, nil,
					logging.Fields{logging.Consumer: key.Consumer, logging.Key: key.ID})
			}
			return out, nil
		}
		if !errors.Is(err, keytable.ErrHeld) {
			logging.SequencesAway.Write(o.Logger, err,
				logging.Fields{logging.Consumer: key.Consumer, logging.Key: key.ID})
		}
		if !wait.For(ctx, pause) {
			return nil, chain.Requeued(err)
		}
	}
}
