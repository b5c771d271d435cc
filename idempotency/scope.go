package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
)

// scope is what a message's context holds while its handler runs inside a claim.
type scope struct {
	store Store
	entry Entry
	msg   *message.Message
	tx    *sql.Tx
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
// Return the error of a failed statement. Some errors end the transaction: SQLite then lets later statements commit on
// their own, and PostgreSQL and MySQL commit nothing. The receiver ends the transaction. A handler that ends it, by a
// deferred Rollback too, and returns nil gets a permanent error; if it returns an error, it keeps that error. On
// PostgreSQL and MySQL its Commit keeps nothing, and tx.Stmt accepts no statement that was prepared on the *sql.DB.
// After the transaction has ended, its methods return sql.ErrTxDone.
func Tx(ctx context.Context) *sql.Tx {
	if s := scopeOf(ctx); s != nil {
		return s.tx
	}
	return nil
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
