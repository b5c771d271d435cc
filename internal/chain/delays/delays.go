// Package delays is what stages know of a store in which messages wait. Package delayed keeps them in a table.
package delays

import (
	"context"
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/observe"
)

// MaxDelay is the longest delay, about ten years. A longer one was meant in another unit.
const MaxDelay = 10 * 366 * 24 * time.Hour

// Store keeps messages until they are due. A *delayed.Store is one, which says more of each method.
type Store interface {
	DB() *sql.DB
	Service() string
	Put(ctx context.Context, topic string, msg *message.Message, after time.Duration) error
	Waiting(ctx context.Context) ([]Waiting, error)
	// Relay returns what publishes the messages that are due. GiveUp is called with a message that the publisher can
	// never accept. If it returns nil, it has placed the message elsewhere.
	Relay(publisher message.Publisher, giveUp GiveUp, shared observe.Shared) Relay
}

// GiveUp places a message elsewhere that a publisher refuses for good.
type GiveUp = func(ctx context.Context, topic string, msg *message.Message, refusal error) error

// Relay publishes messages until the context ends.
type Relay interface {
	Run(ctx context.Context) error
}

// Waiting is what is kept for one topic.
type Waiting struct {
	// Topic is where the messages will be published.
	Topic string
	// Messages is how many there are. It includes those that are being published.
	Messages int
	// Next is the time until the first of them is due, to the microsecond. Negative: it is overdue by as much.
	Next time.Duration
}

// Kept makes the type that embeds it a Keeper.
type Kept struct{ store Store }

// KeptIn returns the Kept of a store.
func KeptIn(store Store) Kept { return Kept{store} }

func (k Kept) delays() Store { return k.store }

// Keeper is a *delay.Store.
type Keeper interface{ delays() Store }

// In returns the store of a Keeper, or nil.
func In(k Keeper) Store {
	if k == nil {
		return nil
	}
	return k.delays()
}
