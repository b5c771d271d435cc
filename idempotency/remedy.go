package idempotency

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/sqlite"
)

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
