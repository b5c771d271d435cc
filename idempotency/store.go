package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// Key names one message for one consumer. Two messages with the same key are the same message, delivered twice.
type Key struct {
	// Consumer is the identity under which a handler applies messages, such as "shop/billing". See Store.Consumer.
	Consumer string
	// ID is the key of a message among those of the Consumer. It may hold any bytes.
	ID string
}

// Entry is a key to be entered into a store, with what is known of its message.
type Entry struct {
	Key
	// Fingerprint is the SHA-256 of the payload, or nil if payloads are not compared.
	Fingerprint []byte
	// Version is the business version of the message, if it is Versioned. Its key is applied again with every higher
	// version, and with no other.
	Version   int64
	Versioned bool

	place keytable.Place // of a message in a sequence
}

// Record is what a store has kept of a key that was applied.
type Record struct {
	// Outputs is what Commit was called with, byte for byte. It is nil if there were none, or if they were marked
	// published.
	Outputs []byte
	// Fingerprint and Version are those of the entry that was applied.
	Fingerprint []byte
	Version     int64
	Versioned   bool
	// Settled says that the message ended without an effect: it was dead-lettered or discarded in its place in the
	// order of its key.
	Settled bool
}

// ErrHeld is the error of a key that another delivery has leased. The message must come again later.
var ErrHeld = keytable.ErrHeld

// Store keeps the keys that were applied. Implementations are safe for concurrent use by many processes.
type Store interface {
	// Consumer returns the identity under which the keys of a handler are kept. It is part of each key: handlers of
	// different services must have different ones. It is the same whenever it is asked for.
	Consumer(handler string) string

	// Claim begins a transaction and enters the key as its first statement. If another transaction holds the same key,
	// Claim waits for its end. This wait, and waits for connections and locks, end with ctx. Claim does not wait for a
	// lease: the error wraps ErrHeld. The transaction itself must outlive ctx, because a handler that acks its message
	// ends the message's context: it begins on context.WithoutCancel.
	//
	// Keys compare byte for byte, case and trailing spaces included, whatever bytes they hold. A versioned entry claims
	// a key that is applied with a lower version, or with none. An error leaves nothing behind, and wraps its cause.
	Claim(ctx context.Context, entry Entry) (Claim, error)

	// Lease leases the key for d, at least a second, by the clock of the store's database. It commits before it
	// returns, and leaves no transaction open. Keys, versions and waits are as in Claim. Lease does not wait for
	// another lease: the error wraps ErrHeld. It takes a lease over that has expired, that was given up, or that began
	// in the future because the clock was set back. What is recorded of the key stays recorded until Lease.Complete.
	// After an error, which wraps its cause, a lease may be left; it expires.
	Lease(ctx context.Context, entry Entry, d time.Duration) (Lease, error)

	// MarkPublished forgets the outputs that were recorded with an entry. The receiver calls it after they were
	// published. A key that does not exist, is not applied, or is applied with another version is no error.
	MarkPublished(ctx context.Context, entry Entry) error

	// Purge deletes at most limit keys that were applied before a time, the oldest first, and returns how many it
	// deleted. It is one short transaction that passes over keys that others are about to change; on SQLite claims wait
	// for it. So fewer than limit are deleted if there are no more, or if the others were locked. Leased keys stay. See
	// NewPurge.
	Purge(ctx context.Context, before time.Time, limit int) (int, error)
}

// Claim is an open transaction that has entered a key. One goroutine uses it, and ends it by Commit or Release.
type Claim interface {
	// Tx returns the transaction for the handler's own writes. The claim ends it; the handler must not.
	Tx() *sql.Tx

	// Recorded returns what was recorded when the key was applied with this version or a higher one. It returns nil if
	// this claim is the first. A claim with a record can only be released.
	Recorded() *Record

	// Commit records outputs with the key, byte for byte, and commits them with the handler's writes. It ends the
	// claim. If it fails, nothing was committed, unless the handler ended the transaction itself: then the error wraps
	// sql.ErrTxDone.
	Commit(outputs []byte) error

	// Release rolls back, so that neither key nor writes stay. After the claim has ended it does nothing and returns
	// nil. An error that wraps sql.ErrTxDone means that the handler committed the transaction itself.
	Release() error
}

// row is the entry as it stands in the table.
func (e *Entry) row() keytable.Row {
	row := keytable.NewRow(e.Consumer, e.ID, e.Fingerprint, e.Version, e.Versioned)
	row.Place = e.place
	return row
}

// scope is what a message's context holds while its handler runs inside a claim.
type scope struct {
	store Store
	entry Entry
	msg   *message.Message
	claim Claim   // or nil, with a lease
	tx    *sql.Tx // of a unit test
	outer *scope
	ended atomic.Bool
}

func scopeOf(ctx context.Context) *scope {
	s, _ := chain.ClaimOf(ctx).(*scope)
	return s
}

// Holds is for the parts further in. See chain.Claim.
func (s *scope) Holds(msg *message.Message) bool { return s.msg == msg }

// Locks is for the dead-letter store. See chain.Claim.
func (s *scope) Locks(db *sql.DB) bool {
	store, ok := s.store.(interface{ locks(*sql.DB) bool })
	return ok && !s.ended.Load() && store.locks(db)
}

// leave returns ctx without the scope, for messages that go on when its transaction has ended.
func (s *scope) leave(ctx context.Context) context.Context {
	if scopeOf(ctx) != s {
		return ctx
	}
	if s.outer == nil {
		return chain.WithClaim(ctx, nil)
	}
	return chain.WithClaim(ctx, s.outer)
}

// WithTx returns ctx with a transaction that Tx returns, for the unit test of a handler. The test ends the transaction:
// it checks what the handler wrote, and rolls back. In a service the receiver does both.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return chain.WithClaim(ctx, &scope{tx: tx})
}

// Tx returns the transaction that holds the key of the message with this context. It returns nil if there is none:
// outside of a handler behind a Receiver, and in lease mode. What is written through it commits with the key when the
// handler returns without an error.
//
// Return the error of a failed statement. Some errors end the transaction: SQLite and MySQL then let later statements
// commit on their own, and PostgreSQL commits nothing. The receiver ends the transaction. A handler that ends it, by a
// deferred Rollback too, and returns nil gets a permanent error; if it returns an error, it keeps that error.
// What it committed stays, with the key. After the transaction has ended, its methods return sql.ErrTxDone.
func Tx(ctx context.Context) *sql.Tx {
	switch s := scopeOf(ctx); {
	case s == nil:
		return nil
	case s.claim != nil:
		return s.claim.Tx()
	default:
		return s.tx
	}
}

// Claim returns the claim itself, for package pgxstore.
func (s *scope) Claim() any {
	if c, ok := s.claim.(interface{ unwrap() any }); ok {
		return c.unwrap()
	}
	return s.claim
}

// nested reports whether a claim on this store is held for the same message already, because the middleware was
// attached twice: a second claim would wait for the first for ever. Claims on the way to the message, of a handler that
// published it from within, are no concern: they end on their own.
func nested(ctx context.Context, store Store, key Key, msg *message.Message) (bool, error) {
	for s := scopeOf(ctx); s != nil; s = s.outer {
		if s.msg != msg || !sameStore(s.store, store) {
			continue
		}
		if s.entry.Key == key {
			return true, nil
		}
		return true, classify.Permanent(failed("claim", key, errors.New(
			"the message is inside a claim of the same store already, of key "+quote(s.entry.Key.ID)+" of consumer "+
				quote(s.entry.Key.Consumer)+": give the handler one receiver, with ReceiverConfig.Handlers for a key of its own")))
	}
	return false, nil
}

func sameStore(a, b Store) bool {
	if s, ok := a.(interface{ same(Store) bool }); ok {
		return s.same(b)
	}
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// sequenced is a Receiver as package sequence sees it.
type sequenced struct{ of *Receiver }

// Keys refuses what cannot keep an order: see package sequence.
func (s sequenced) Keys() (none keytable.Keys, joins bool, err error) {
	r := s.of
	if r.config.Lease > 0 {
		return none, false, fmt.Errorf("ReceiverConfig.Lease is %s: a lease ends while its holder is stopped, so an effect could "+
			"come late; leave Lease out, and write through idempotency.Tx", r.config.Lease)
	}
	if r.config.Version != nil {
		return none, false, errors.New("ReceiverConfig.Version is set: a message that ended without an effect is known by a key of " +
			"its own; leave Version out")
	}
	for handler, key := range r.config.Handlers {
		if key.Version != nil {
			return none, false, fmt.Errorf("ReceiverConfig.Handlers[%q].Version is set: a message that ended without an effect is "+
				"known by a key of its own; leave Version out", handler)
		}
	}
	store, joins := beside(r.store)
	if store == nil {
		return none, false, fmt.Errorf("the store of keys is a %T, and messages wait beside their keys: use a store of "+
			"idempotency.NewStore, pgxstore.New or wmsql.Join", r.store)
	}
	return store.Keys(), joins, nil
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
func (s sequenced) Key(ctx context.Context, msg *message.Message) (keytable.Key, error) {
	entry, err := s.of.entry(ctx, msg)
	return keytable.Key{Consumer: entry.Consumer, ID: entry.ID, Fingerprint: entry.Fingerprint}, err
}

// Settle writes that the message ended without an effect. If it has had one, it returns the recorded outputs.
func (s sequenced) Settle(ctx context.Context, key keytable.Key,
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
