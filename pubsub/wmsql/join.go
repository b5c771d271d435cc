package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// JoinedStore is an idempotency.Store whose claims are part of the transaction in which a Subscriber consumes the message:
// key, the handler's writes, and recorded outputs commit with the acknowledgement. It keeps them in the table
// spillway_keys, as idempotency.Postgres and idempotency.MySQL do.
type JoinedStore struct {
	sub *Subscriber
	own idempotency.Store // for messages that come from elsewhere
	err error
}

// Join returns the store for the handlers of sub, which must be a *Subscriber: of no other is it known what it does with
// its transaction. Asked to join any other, the store is an error when it is initialized, which is when the receiver or
// the channel is made. Messages of any *Subscriber on the same *sql.DB are joined, so a channel for several needs one
// Join. Those that come from elsewhere, from another broker for one, are applied in a transaction of their own in the same
// database.
//
// The transaction that idempotency.Tx returns is a savepoint of the subscriber's: it ends with the attempt, whatever the
// others in the batch do, and its Commit and Rollback are not the handler's business there either.
func Join(sub message.Subscriber) *JoinedStore {
	s, ok := sub.(*Subscriber)
	if !ok || s == nil {
		return &JoinedStore{err: fmt.Errorf("wmsql: Join: a %T cannot be joined, only a *wmsql.Subscriber: watermill-sql's own commits "+
			"half-done work at its deadline and at Close; use wmsql.NewSubscriber, or a transaction of the receiver's own (idempotency.Postgres or MySQL)", sub)}
	}
	return s.joined // the same every time, so that a receiver knows a claim of its own store
}

// Initialize creates the table spillway_keys, or verifies the one that is there. See idempotency.Store.
func (s *JoinedStore) Initialize(ctx context.Context) error {
	if s == nil {
		return errors.New("wmsql: the *JoinedStore is nil")
	}
	if s.err != nil {
		return s.err
	}
	if err := s.sub.dialect.ensureKeys(ctx, s.sub.config.DB); err != nil {
		return fmt.Errorf("wmsql: initialize the store of keys: %w", err)
	}
	return nil
}

// Claim enters the key in the message's transaction. See idempotency.Store.
func (s *JoinedStore) Claim(ctx context.Context, entry idempotency.Entry) (idempotency.Claim, error) {
	if s == nil || s.err != nil {
		return nil, errors.New("wmsql: the store of keys was not initialized")
	}
	d := deliveryOf(ctx)
	if d == nil || d.db != s.sub.config.DB {
		return s.own.Claim(ctx, entry)
	}
	c := &claim{d: d, row: rowOf(entry)}
	switch err := c.begin(ctx); {
	case errors.Is(err, errSettled), errors.Is(err, errClaimed): // by its handler; or the message is another one with this context
		return s.own.Claim(ctx, entry)
	case err != nil:
		return nil, err
	}
	return c, nil
}

// Lease leases the key in a transaction of its own, on another connection of the *sql.DB, which must have one to spare: a
// lease that committed with the message would be none while the handler runs. See idempotency.Store.
func (s *JoinedStore) Lease(ctx context.Context, entry idempotency.Entry, d time.Duration) (idempotency.Lease, error) {
	if s == nil || s.err != nil {
		return nil, errors.New("wmsql: the store of keys was not initialized")
	}
	return s.own.Lease(ctx, entry, d)
}

// MarkPublished forgets outputs in the message's transaction, in which the key is, or in the database where that has ended.
// See idempotency.Store.
func (s *JoinedStore) MarkPublished(ctx context.Context, entry idempotency.Entry) error {
	if s == nil || s.err != nil {
		return errors.New("wmsql: the store of keys was not initialized")
	}
	d := deliveryOf(ctx)
	if d == nil || d.db != s.sub.config.DB {
		return s.own.MarkPublished(ctx, entry)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.usable() != nil {
		return s.own.MarkPublished(ctx, entry)
	}
	return s.sub.dialect.inKeys.Published(ctx, d.t.db, rowOf(entry))
}

// Purge deletes old keys, in a transaction of its own. See idempotency.Store.
func (s *JoinedStore) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	if s == nil || s.err != nil {
		return 0, errors.New("wmsql: the store of keys was not initialized")
	}
	return s.own.Purge(ctx, before, limit)
}

func rowOf(entry idempotency.Entry) keytable.Row {
	return keytable.NewRow(entry.Consumer, entry.ID, entry.Fingerprint, entry.Version, entry.Versioned)
}

// claim is a savepoint of the message's transaction, with the key behind it.
type claim struct {
	d        *delivery
	row      keytable.Row
	tx       *sql.Tx
	name     string
	recorded *keytable.Record
	ended    chan struct{}
}

func (c *claim) Tx() *sql.Tx                   { return c.tx }
func (c *claim) Recorded() *idempotency.Record { return (*idempotency.Record)(c.recorded) }

var (
	errSettled = errors.New("wmsql: the message is acked")
	errClaimed = errors.New("wmsql: the message is inside of a claim")
	errAborted = errors.New("wmsql: a statement failed, and so nothing of the attempt can commit; return the error of a failed statement, " +
		"or set a SAVEPOINT before it and roll back to that")
)

// begin leaves nothing behind when it fails.
func (c *claim) begin(ctx context.Context) (err error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if err := c.d.usable(); err != nil {
		return err
	}
	if c.d.busy != nil && !isClosed(c.d.busy) {
		return errClaimed
	}
	if c.tx, c.name, err = c.d.begin(); err != nil {
		return err
	}
	if c.recorded, err = c.d.t.dialect.inKeys.Enter(ctx, c.tx, c.row); err != nil {
		_ = c.tx.Rollback()
		return fmt.Errorf("wmsql: enter the key: %w", err)
	}
	c.ended = make(chan struct{})
	c.d.busy = c.ended
	return nil
}

// usable tells why a delivery takes nothing more.
func (d *delivery) usable() error {
	switch d.state {
	case open:
		return nil
	case acked:
		return errSettled
	default:
		return errOver
	}
}

// Commit records the outputs. It commits with the acknowledgement.
func (c *claim) Commit(outputs []byte) error {
	if c.over() {
		return fmt.Errorf("wmsql: commit of a claim that has ended: %w", sql.ErrTxDone)
	}
	defer c.end()
	if err := c.record(outputs); err != nil {
		_ = c.undo()
		return err
	}
	return nil
}

func (c *claim) record(outputs []byte) error {
	if c.recorded != nil {
		return errors.New("wmsql: commit of a key that was applied before")
	}
	if failed := c.d.t.failed(); failed != nil {
		return fmt.Errorf("%w: %w", errAborted, failed)
	}
	if err := c.d.t.reset(); err != nil {
		return err
	}
	if len(outputs) > 0 {
		if err := c.d.t.dialect.inKeys.RecordOutputs(context.Background(), c.tx, c.row, outputs); err != nil {
			return fmt.Errorf("wmsql: record the outputs: %w", err)
		}
	}
	if err := c.tx.Commit(); err != nil {
		return fmt.Errorf("wmsql: commit: %w", err)
	}
	return nil
}

// Release undoes everything since the claim, whatever the handler did with its transaction.
func (c *claim) Release() error {
	if c.over() {
		return nil
	}
	defer c.end()
	return c.undo()
}

func (c *claim) undo() error {
	if c.recorded != nil { // nothing was written
		_ = c.tx.Commit()
		return nil
	}
	over, _ := c.d.t.fate()
	err := c.tx.Rollback()
	if over == nil && err == sql.ErrTxDone { // the handler called Commit or Rollback, which ended its *sql.Tx alone
		err = c.d.t.rollbackTo(c.name)
	}
	if over == nil && c.d.t.dialect.noSavepoint(err) {
		c.d.spoiled.Store(true) // until it is known: the answer may come when nobody waits for it any more
		c.d.spoiled.Store(c.committed())
	}
	return nil // where there is no savepoint any more the whole transaction has ended
}

// committed tells whether the key of this claim is in the database although the transaction is gone: the handler
// committed it, in SQL or by a statement that commits implicitly. One that a duplicate entered has another nonce.
func (c *claim) committed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	found, err := c.d.t.dialect.inKeys.Entered(ctx, c.d.db, c.row)
	return err == nil && found
}

func (c *claim) over() bool { return isClosed(c.ended) }

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (c *claim) end() { close(c.ended) }
