package keytable

import (
	"context"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Keys are those of a service in a database.
type Keys struct {
	On      *database.Database
	Service string
}

// Keys lets the keys of a service stand for a store of them, without a receiver.
func (k Keys) Keys() Keys { return k }

// Consumer returns the identity under which the keys of a handler are kept.
func (k Keys) Consumer(handler string) string {
	if k.Service == "" && !strings.Contains(handler, "/") {
		return handler
	}
	return k.Service + "/" + handler
}

// Keeper is a store of keys in a table: a store of idempotency.NewStore or pgxstore.
type Keeper interface{ Keys() Keys }

// Receiver is an idempotent receiver as package sequence sees it, which parks messages beside its keys.
type Receiver interface {
	// Keys returns where the keys are, or an error that names what cannot keep an order. joins says that keys are
	// written in the transactions of a subscriber.
	Keys() (keys Keys, joins bool, err error)
	// Key returns how a message is recognised, or an error if it has no key: then it never has an effect.
	Key(ctx context.Context, msg *message.Message) (Key, error)
	// Settle writes that a message ended without an effect. If it had one, it returns the outputs.
	Settle(ctx context.Context, key Key, place Place) (out []*message.Message, applied bool, err error)
}

// Key is how a receiver recognises a message.
type Key struct {
	Consumer, ID string
	Fingerprint  []byte // of the payload, or nil
}

// Placer is what knows where a message stands in its source: a *sequence.Delivery.
type Placer interface {
	Place(msg *message.Message) Place
}

// Received makes the type that embeds it a receiver to ReceiverOf.
type Received struct{ by Receiver }

// ReceivedBy returns the Received of a receiver.
func ReceivedBy(r Receiver) Received { return Received{r} }

func (r Received) receiver() Receiver { return r.by }

// ReceiverOf returns what a receiver is to package sequence.
func ReceiverOf(receiver interface{ receiver() Receiver }) Receiver { return receiver.receiver() }
