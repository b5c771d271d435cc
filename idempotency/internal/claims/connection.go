// Package claims is what the claims of all databases share: connections that are held from the key to the commit, and
// errors.
package claims

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// Cut closes a connection behind the back of database/sql.
func Cut(conn *sql.Conn) {
	_ = conn.Raw(func(conn any) error {
		if closer, ok := conn.(driver.Conn); ok {
			_ = closer.Close()
		}
		return nil
	})
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

var pqConn = foreign.RowOf("github.com/lib/pq", "", "conn", 1)

func isPQ(conn driver.Conn) bool {
	t := reflect.TypeOf(conn)
	return t != nil && t.Kind() == reflect.Pointer && pqConn.Is(t.Elem())
}

// CutOff closes a connection of lib/pq behind its back when a call on it goes on after ctx has ended, until the
// function that it returns is called. That driver asks the server on another connection to cancel: the request is lost
// when it comes before the statement, and the statement may wait for as long as a handler runs. Its Close may be called
// during a call; that of others, which interrupt their calls themselves, may not.
func CutOff(ctx context.Context, inUse driver.Conn) (returned func()) {
	if ctx.Done() == nil || !isPQ(inUse) {
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

// ErrRolledBack says that nothing of the claim's transaction is in the database: a failed statement ended it, or the
// handler did. SQLite rolls back by itself when the disk is full, a statement is interrupted, or one says OR ROLLBACK
// (sqlite.org/lang_transaction.html), and MySQL after a deadlock. What is written after that commits on its own.
var ErrRolledBack = fmt.Errorf("the transaction was rolled back before the handler returned, by the database when a "+
	"statement failed or by the handler: %w", sql.ErrTxDone)

// EndedByHandler is what a dead letter says of a handler that ended its transaction.
const EndedByHandler = "the handler ended the transaction itself: return nil for a commit and an error for a " +
	"rollback, and leave both to the receiver. What it committed stays with its key, and a redrive is absorbed, perhaps " +
	"without outputs; " +
	"where nothing was committed, a redrive applies the message"

// Claim is an open transaction that has entered a key. See idempotency.Claim.
type Claim interface {
	Tx() *sql.Tx
	Recorded() *keytable.Record
	Commit(outputs []byte) error
	Release() error
	// LostConnection reports whether the connection was lost when the claim was rolled back.
	LostConnection() bool
}

// Begin enters the key of a row in a transaction of its own, and waits while another one holds the same key.
type Begin func(ctx context.Context, db *sql.DB, row keytable.Row) (Claim, error)
