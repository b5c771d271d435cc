package idempotency

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

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

// beneath is the driver's own connection, or nil when conn is closed.
func beneath(conn *sql.Conn) (own driver.Conn) {
	_ = conn.Raw(func(raw any) error {
		own, _ = raw.(driver.Conn)
		return nil
	})
	return own
}

// interruption is how long a driver has to return when its context has ended.
const interruption = time.Second

// cutOff closes a connection of lib/pq behind its back when a call on it goes on after ctx has ended, until the function that
// it returns is called. That driver asks the server on another connection to cancel: the request is lost when it comes before
// the statement, and the statement may wait for as long as a handler runs. Its Close may be called during a call; that of
// others, which interrupt their calls themselves, may not.
func cutOff(ctx context.Context, inUse driver.Conn) (returned func()) {
	if t := reflect.TypeOf(inUse); ctx.Done() == nil || t == nil || t.Kind() != reflect.Pointer ||
		!strings.HasSuffix(t.Elem().PkgPath(), "github.com/lib/pq") {
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
		case <-over: // the connection may be somebody else's by now
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

// discard closes the connection itself: the database rolls back what was open on it.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}
