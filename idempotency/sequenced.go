package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// sequenced is a Receiver as package sequence sees it.
type sequenced struct{ of *Receiver }

// Open refuses what cannot keep an order: see package sequence.
func (s sequenced) Open(ctx context.Context) (*sequence.Store, error) {
	r := s.of
	if r.config.Lease > 0 {
		return nil, fmt.Errorf("ReceiverConfig.Lease is %s: a lease ends while its holder is stopped, so an effect could "+
			"come late; leave Lease out, and write through idempotency.Tx", r.config.Lease)
	}
	if r.config.Version != nil {
		return nil, errors.New("ReceiverConfig.Version is set: a message that ended without an effect is known by a key of " +
			"its own; leave Version out")
	}
	for handler, key := range r.config.Handlers {
		if key.Version != nil {
			return nil, fmt.Errorf("ReceiverConfig.Handlers[%q].Version is set: a message that ended without an effect is "+
				"known by a key of its own; leave Version out", handler)
		}
	}
	store, joins := beside(r.store)
	if store == nil {
		return nil, fmt.Errorf("the store of keys is a %T, and messages wait beside their keys: use a store of "+
			"idempotency.NewStore, pgxstore.New or wmsql.Join", r.store)
	}
	parked, err := sequence.NewStore(ctx, store.on.DB(), store.service)
	if err == nil && joins {
		parked.Join()
	}
	return parked, err
}

// beside returns the store whose table of keys parked messages are beside, or nil. joins says that keys are written in
// the transactions of a subscriber, as those of wmsql.Join are.
func beside(store Store) (_ *sqlStore, joins bool) {
	if joined, ok := store.(interface{ Unjoined() Store }); ok {
		store, joins = joined.Unjoined(), true
	}
	own, _ := store.(*sqlStore)
	return own, joins
}

// Key returns how the message is recognised.
func (s sequenced) Key(ctx context.Context, msg *message.Message) (sequence.Key, error) {
	entry, err := s.of.entry(ctx, msg)
	return sequence.Key{Consumer: entry.Consumer, ID: entry.ID, Fingerprint: entry.Fingerprint}, err
}

// Settle writes that the message ended without an effect. If it has had one, it returns the recorded outputs.
func (s sequenced) Settle(ctx context.Context, key sequence.Key,
	place keytable.Place) (out []*message.Message, applied bool, err error) {
	store, joins := beside(s.of.store)
	if store == nil {
		return nil, false, fmt.Errorf("idempotency: the store of keys is a %T", s.of.store)
	}
	entry := Entry{Key: Key{key.Consumer, key.ID}, Fingerprint: key.Fingerprint, place: place}
	var record *keytable.Record
	joined := false
	if joins {
		joined, err = chain.WriteJoined(ctx, store.pool(), func(tx *sql.Tx) (err error) {
			record, err = keytable.DialectOf(store.on.Kind()).Settle(ctx, tx, entry.row())
			return err
		})
	}
	if !joined {
		record, err = keytable.Settle(ctx, store.on, entry.row())
	}
	if err != nil || record == nil {
		return nil, false, err
	}
	out, err = decodeOutputs(record.Outputs)
	return out, true, err
}
