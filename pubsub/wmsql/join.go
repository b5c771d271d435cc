package wmsql

import (
	"context"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/idempotency"
)

// joinedStore is an idempotency.Store that claims keys in the transaction in which a Subscriber consumes the message.
// The key, the handler's writes and the recorded outputs commit with the acknowledgement. The keys are in the table
// spillway_keys, as those of idempotency.NewStore are. A lease needs another connection of the *sql.DB: one that
// committed with the message would not hold while the handler runs.
type joinedStore struct {
	store // for messages that come from elsewhere, and for leases, whose transactions are their own
	sub   *Subscriber
}

type store = idempotency.Store

// Join returns the store for the handlers of sub, with its table created and verified as by idempotency.NewStore. A
// store joins the messages of every Subscriber on the same *sql.DB: a channel for several Subscribers needs one Join.
// The keys of other messages, from another broker for example, are claimed in a transaction of their own in the same
// database.
//
// The transaction that idempotency.Tx returns is a savepoint of the Subscriber's transaction. The savepoint ends with
// the attempt, whatever becomes of the other messages in the batch. A handler must not call its Commit or Rollback.
func Join(ctx context.Context, sub *Subscriber, service string) (idempotency.Store, error) {
	if sub == nil {
		return nil, errors.New("wmsql: Join: the Subscriber is nil: check the error of NewSubscriber")
	}
	sub.joining.Lock()
	defer sub.joining.Unlock()
	if joined := sub.joined[service]; joined != nil {
		return joined, nil // the same each time, so that a receiver recognizes a claim of its own store
	}
	own, err := idempotency.NewStore(ctx, sub.db, service)
	if err != nil {
		return nil, fmt.Errorf("wmsql: Join: %w", err)
	}
	if sub.joined == nil {
		sub.joined = make(map[string]*joinedStore)
	}
	sub.joined[service] = &joinedStore{own, sub}
	return sub.joined[service], nil
}

// Claim enters the key in the message's transaction. See idempotency.Store.
func (s *joinedStore) Claim(ctx context.Context, entry idempotency.Entry) (idempotency.Claim, error) {
	d := s.deliveryOf(ctx)
	if d == nil {
		return s.store.Claim(ctx, entry)
	}
	c := &claim{d: d, row: rowOf(entry)}
	if line := d.of.line; line != nil {
		c.row.Place = line.order.Place(d.of.row.Msg)
	}
	switch err := c.begin(ctx); {
	case errors.Is(err, errSettled), errors.Is(err, errClaimed): // settled by its handler, or another message with this context
		return s.store.Claim(ctx, entry)
	case err != nil:
		return nil, err
	}
	return c, nil
}

// Unjoined is for a receiver that parks messages beside the keys.
func (s *joinedStore) Unjoined() idempotency.Store { return s.store }

// deliveryOf returns the delivery whose transaction a claim can join, or nil.
func (s *joinedStore) deliveryOf(ctx context.Context) *delivery {
	if d := deliveryOf(ctx); d != nil && d.db == s.sub.db {
		return d
	}
	return nil
}

// MarkPublished forgets recorded outputs in the message's transaction, or, if that has ended, in the database. See
// idempotency.Store.
func (s *joinedStore) MarkPublished(ctx context.Context, entry idempotency.Entry) error {
	d := s.deliveryOf(ctx)
	if d == nil {
		return s.store.MarkPublished(ctx, entry)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.usable() != nil {
		return s.store.MarkPublished(ctx, entry)
	}
	return s.sub.dialect.inKeys.Published(ctx, d.t.db, rowOf(entry))
}
