package idempotency

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/sqlite"
)

const (
	// patience is how long a claim waits before the receiver looks whether the database is still there.
	patience = 20 * time.Second
	// maxPatience is how long a claim waits for a connection, or for another transaction that has its key, before the
	// message is requeued.
	maxPatience = 5 * time.Minute
	// nestedPatience is how long a claim waits inside of another claim of the same key, which may be what it waits for.
	nestedPatience = 5 * time.Second
	// pingTimeout bounds the question whether the database is there.
	pingTimeout = 5 * time.Second
)

// storeUnavailable reports whether a claim failed because the store is unavailable, or refuses keys: no answer to a
// claim is about the message, except about its values. The store is not unavailable for a claim that has waited for
// long, and no attempt helps one that was to join a transaction which has ended.
func storeUnavailable(err error) bool {
	return !errors.Is(err, errPatience) && !errors.Is(err, sql.ErrTxDone) &&
		(outage.Unavailable(err) || outage.Refused(err))
}

// claim claims the key of c's message. While the store is unavailable the message is held.
func (r *Receiver) claim(ctx context.Context, c *chain.Call, entry Entry) (claim Claim, err error) {
	err = r.keeper.Do(ctx, c, func() (err error) {
		if claim, err = r.claimPatiently(ctx, c, entry); err != nil {
			return failed("claim", entry.Key, err)
		}
		return nil
	})
	return claim, err
}

// errPatience says that a claim waited for long, with a database that answers.
var errPatience = errors.New("the key was not free in time: another transaction holds it, or the pool has no " +
	"connection to spare")

var errNestedPools = fmt.Errorf("the message is inside a claim of this key already, by a receiver with another *sql.DB, "+
	"perhaps on the same database, so that the two wait for each other: give the handler one receiver: %w", errPatience)

// claimPatiently looks at times whether the database is there, for a claim that waits: a driver may wait for ever for a
// server that is gone without a word.
func (r *Receiver) claimPatiently(ctx context.Context, c *chain.Call, entry Entry) (Claim, error) {
	if claimsInTurn(r.store) { // its claims wait in a row, which may be long
		return r.store.Claim(ctx, entry)
	}
	if claimedBefore(ctx, entry.Key, c.Msg) {
		claim, err, inTime := r.claimWithin(ctx, entry, nestedPatience)
		if !inTime {
			err = errNestedPools
		}
		return claim, err
	}
	for waited := time.Duration(0); ; {
		claim, err, inTime := r.claimWithin(ctx, entry, patience)
		if inTime {
			return claim, err
		}
		waited += patience
		if r.pool.full() {
			r.pool.tell(waited)
		} else if gone := r.ping(ctx); gone != nil {
			return nil, gone
		}
		if waited >= maxPatience {
			return nil, fmt.Errorf("%w: waited %s", errPatience, waited)
		}
	}
}

// claimWithin reports whether the claim came to an end before its time was over.
func (r *Receiver) claimWithin(ctx context.Context, entry Entry,
	d time.Duration) (claim Claim, err error, inTime bool) {
	within, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	claim, err = r.store.Claim(within, entry)
	return claim, err, err == nil || within.Err() == nil || ctx.Err() != nil
}

// claimedBefore reports whether a transaction further out holds the same key for the same message, in another store.
func claimedBefore(ctx context.Context, key Key, msg *message.Message) bool {
	for s := scopeOf(ctx); s != nil; s = s.outer {
		if s.msg == msg && s.entry.Key == key && s.claim != nil && !s.ended.Load() {
			return true
		}
	}
	return false
}

// unclaimed is the error of a claim that failed.
func (r *Receiver) unclaimed(c *chain.Call, key Key, err error) error {
	if failure, ok := errs.Find[*classify.Failure](err); ok && failure.Verdict.Class == classify.ClassAborted {
		return err // it is requeued
	}
	switch ended := waitContext(c).Err(); {
	case errors.Is(err, ErrHeld):
		r.tell("OnRequeue", r.config.Hooks.OnRequeue, c.Msg.Context(), key)
		return r.requeue(c, err)
	case c.Acked():
		return err
	case outage.Contended(err), errors.Is(err, errPatience), errors.Is(ended, context.DeadlineExceeded):
		return r.requeue(c, err)
	case errors.Is(err, sql.ErrTxDone): // the transaction that was to be joined is over
		return r.keeper.Interrupted(waitContext(c), c, err, nil)
	}
	return err
}

// failed is the error of a handler. Where the connection of its transaction was lost, and the handler's error can come
// of that, the error says nothing of the message.
func (r *Receiver) failed(c *chain.Call, key Key, claim Claim, err error) error {
	err = r.inHandler(key, err)
	if released := claim.Release(); released != nil {
		return r.left(key, err, released)
	}
	cut, ok := claim.(interface{ LostConnection() bool })
	if !ok || !cut.LostConnection() {
		return err
	}
	_, panicked := errs.Find[*classify.PanicError](err) // over the error of a statement, as a handler with Must does
	if class := (*classify.Classifier)(nil).Classify(err).Class; !panicked && class != classify.ClassTransient &&
		class != classify.ClassUnknown {
		return err
	}
	// some drivers close a connection when a statement's time is over
	if c.Left(chain.OutcomeOf(err)) || endedByTime(err) && r.ping(waitContext(c)) == nil {
		return err
	}
	return r.interrupted(c, failed("apply", key, err))
}

// endedByTime reports whether a handler's error says that a context of its own ended.
func endedByTime(err error) (ended bool) {
	_ = safecall.Call("the handler's error", func() error { ended = isEnd(err); return nil })
	return ended
}

// interrupted gives a message back whose transaction lost its connection.
func (r *Receiver) interrupted(c *chain.Call, err error) error {
	ctx := waitContext(c)
	return r.keeper.Interrupted(ctx, c, err, func() error { return r.ping(ctx) })
}

// ping returns an error where the database does not answer. A store that cannot be asked is there.
func (r *Receiver) ping(ctx context.Context) error {
	store, ok := r.store.(interface{ Ping(context.Context) error })
	if !ok {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := store.Ping(within); err != nil {
		// it waited for a connection of a pool that is used up
		if ctx.Err() == nil && within.Err() != nil && r.pool.full() {
			return nil
		}
		return fmt.Errorf("the database does not answer: %w", err)
	}
	return nil
}

const (
	remedyFull   = "the disk or the file of the database is full: make room; nothing was kept, and the message can come again"
	remedyUndone = "the database undid the transaction, because another one was in its way: nothing was kept, and the " +
		"message can come again; where it happens often, let all handlers change rows in one order"
	remedyLocked = "another connection has the lock of the file; where the handler itself waits for the transaction of its " +
		"message, which holds the lock, write through idempotency.Tx"
	remedyDown = "see that the database is up and within reach; the message can come again, and is absorbed if it was " +
		"applied after all"
)

// remedy says what to do about an error of a store's database, or nothing if that is unknown.
func remedy(err error) string {
	switch {
	case diskFull(err):
		return remedyFull
	case undoneByDatabase(err):
		return remedyUndone
	case sqlite.IsBusy(err):
		return remedyLocked
	case postgres.Pooled(err):
		return postgres.PoolerRemedy
	case mysql.Number(err) == mysql.StatementLog:
		return mysql.StatementLogRemedy
	case mayNot(err):
		return remedyRights
	case database.ReadOnly(err):
		return database.PrimaryRemedy
	case errors.Is(err, ErrHeld), errors.Is(err, sql.ErrTxDone), isEnd(err):
		return "" // it goes away, or another delivery is at work on it, or the handler ended the transaction
	case strings.Contains(err.Error(), "readonly database"):
		return "SQLite may not write: let the process write to the file of the database and to its folder"
	case (*classify.Classifier)(nil).Classify(err).Class == classify.ClassTransient, connectionLost(err):
		return remedyDown
	}
	return ""
}

const remedyRights = "give the database's user the rights SELECT, INSERT, UPDATE and DELETE on spillway_keys"

// mayNot knows PostgreSQL's insufficient_privilege, and what MySQL says of a right that is not there.
func mayNot(err error) bool {
	switch mysql.Number(err) {
	case 1044, 1142, 1143:
		return true
	}
	return postgres.State(err) == "42501"
}

// diskFull knows PostgreSQL's disk_full, MySQL's ER_DISK_FULL and ER_RECORD_FILE_FULL, and SQLite's text for
// SQLITE_FULL, which its drivers give in different types.
func diskFull(err error) bool {
	return err != nil && (postgres.State(err) == "53100" || mysql.Number(err) == 1021 || mysql.Number(err) == 1114 ||
		strings.Contains(err.Error(), "database or disk is full"))
}

// connectionLost knows what drivers say of a connection that is gone, and what says nothing of the kind elsewhere.
func connectionLost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn) ||
		strings.HasSuffix(err.Error(), "invalid connection")
}

func undoneByDatabase(err error) bool { return postgres.Undone(err) || mysql.Undone(err) }

// inHandler names the store and the key in a handler's error, where that is of its transaction and not of what it
// wrote.
func (r *Receiver) inHandler(key Key, err error) error {
	if err == nil {
		return nil
	}
	of := false
	hostile := safecall.Call("the handler's error", func() error {
		of = diskFull(err) || undoneByDatabase(err) || r.onSQLite() && sqlite.IsBusy(err)
		return nil
	})
	if hostile != nil || !of {
		return err
	}
	if name := nameOf(r.store); name != "" {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return failed("apply", key, err)
}

func (r *Receiver) onSQLite() bool {
	s, ok := r.store.(*sqlStore)
	return ok && s.on.Kind() == database.SQLite
}

func nameOf(store Store) string {
	if s, ok := store.(*sqlStore); ok {
		return string(s.on.Kind())
	}
	return "" // of another package
}

func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
