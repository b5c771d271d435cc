// Package claims is what the claims of all databases share: connections that are held from the key to the commit, and
// errors.
package claims

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/foreign"
)

// Guard runs work on the connection of a claim, and closes the connection when work panics, as a driver may, so that
// the key does not stay locked. database/sql may then hold locks of its own, and wait for them for ever when it is
// called once more: the connection is closed behind its back, and given back on another goroutine, which can wait.
// After that it calls panicked.
func Guard(conn *sql.Conn, panicked func(), work func() error) error {
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
		go Discard(conn)
		panicked()
	}()
	err := work()
	returned = true
	return err
}

// Driver returns the driver's own connection, or nil when conn is closed.
func Driver(conn *sql.Conn) (own driver.Conn) {
	_ = conn.Raw(func(raw any) error {
		own, _ = raw.(driver.Conn)
		return nil
	})
	return own
}

// interruption is how long a driver has to return when its context has ended.
const interruption = time.Second

// CutOff closes a connection of lib/pq behind its back when a call on it goes on after ctx has ended, until the
// function that it returns is called. That driver asks the server on another connection to cancel: the request is lost
// when it comes before the statement, and the statement may wait for as long as a handler runs. Its Close may be called
// during a call; that of others, which interrupt their calls themselves, may not.
func CutOff(ctx context.Context, inUse driver.Conn) (returned func()) {
	if ctx.Done() == nil || !foreign.ClosesDuringCalls(inUse) {
		return func() {}
	}
	var closing sync.Mutex
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		patience := time.NewTimer(interruption)
		defer patience.Stop()
		select {
		case <-over:
			return
		case <-patience.C:
		}
		closing.Lock()
		defer closing.Unlock()
		select {
		case <-over: // the connection may be in use for another claim by now
		default:
			_ = inUse.Close()
		}
	})
	return func() {
		if !stop() {
			closing.Lock()
			defer closing.Unlock()
			close(over)
		}
	}
}

// Discard closes the connection itself: the database rolls back what was open on it.
func Discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}
