package idempotency

import (
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/watermill-spillway/spillway/classify"
)

// maxInText is the largest record of outputs, in bytes, that goes in the text of a statement, where it doubles.
const maxInText = 16 << 10

// committedByHandler is what the Commit of a handler's transaction returns where it can be kept from committing.
func committedByHandler(store string, key Key) error {
	err := fmt.Errorf("%s: commit by the handler: the transaction is the receiver's, and nothing of it is committed: %w", store, sql.ErrTxDone)
	return classify.Permanent(failed("commit", key, err), classify.Description(endedByHandler))
}

// guarded runs work on the connection of a claim, and closes the connection when work panics, as a driver may, so that the
// key does not stay locked. database/sql may then hold locks of its own, and wait for them for ever when it is called once
// more: the connection is closed behind its back, and given back by somebody who can wait. After that it calls panicked.
func guarded(conn *sql.Conn, panicked func(), work func() error) error {
	returned := false
	defer func() {
		if returned {
			return
		}
		_ = conn.Raw(func(conn any) error {
			if closer, ok := conn.(driver.Conn); ok {
				_ = closer.Close()
			}
			return nil
		})
		go discard(conn)
		panicked()
	}()
	err := work()
	returned = true
	return err
}

// discard closes the connection itself: the database rolls back what was open on it.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}
