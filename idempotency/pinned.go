package idempotency

import (
	"database/sql"
	"database/sql/driver"
)

// guarded runs work on the connection of a claim, and closes the connection when work panics, as a driver may, so that the
// key does not stay locked. database/sql then still holds locks of its own, and to call it once more would wait for ever:
// the connection is closed behind its back. After that it calls panicked.
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
