package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// claim is a savepoint of the message's transaction, with the key behind it.
type claim struct {
	d         *delivery
	row       keytable.Row
	tx        *sql.Tx
	savepoint int
	recorded  *keytable.Record
	ended     chan struct{}
}

func (c *claim) Tx() *sql.Tx                   { return c.tx }
func (c *claim) Recorded() *idempotency.Record { return (*idempotency.Record)(c.recorded) }

var (
	errSettled = errors.New("wmsql: the message is acked")
	errClaimed = errors.New("wmsql: another claim of the message is open")
	errAborted = errors.New("wmsql: a statement failed, and so nothing of the attempt can commit; return the error of a " +
		"failed statement, or set a SAVEPOINT before it and roll back to that")
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
	if c.tx, c.savepoint, err = c.d.begin(); err != nil {
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
		if err := c.d.t.dialect.inKeys.RecordOutputs(context.Background(), c.tx, c.row, outputs,
			c.d.t.dialect.maxStatement-statementOverhead); err != nil {
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
		err = c.d.t.rollbackTo(c.savepoint)
	}
	if over == nil && c.d.t.dialect.noSavepoint(err) {
		c.d.spoiled.Store(true) // until it is known: the answer may come too late for the delivery
		c.d.spoiled.Store(c.committed())
	}
	return nil // if the savepoint is gone the whole transaction has ended
}

// committed reports whether the key of this claim is in the database although the transaction is gone: the handler
// committed it, in SQL or by a statement that commits implicitly. A key that a duplicate entered has another nonce.
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

func rowOf(entry idempotency.Entry) keytable.Row {
	return keytable.NewRow(entry.Consumer, entry.ID, entry.Fingerprint, entry.Version, entry.Versioned)
}

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
