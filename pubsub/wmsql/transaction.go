package wmsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/watermill-spillway/spillway/internal/keytable"
)

// transaction is one transaction of the database on one connection, in which several messages are consumed. Everybody who
// works in it, handlers included, does so through db, a shadow of the pool: what begins there is a savepoint.
type transaction struct {
	dialect *dialect
	conn    driver.Conn
	tx      driver.Tx
	db      *sql.DB

	life      context.Context // bounds it whatever happens, its end included
	ctx       context.Context // ends with the transaction, and interrupts what is still running on it
	interrupt context.CancelFunc

	mu         sync.Mutex // one statement at a time
	over       error      // why nothing can be said on it any more
	uncounted  bool       // what ended it was nobody's failure
	aborted    error      // the statement that failed, where the database refuses all others until a rollback to a savepoint
	reading    int        // how many results are open, on which the connection cannot say anything else
	savepoints int
	onOver     func()
	prepared   map[string]driver.Stmt // of the connection
	marked     bool                   // a statement may have left something behind
	settings   *keytable.Settings     // as they were before a statement that may have changed them
}

// errOver is what late statements get. It is a sql.ErrTxDone too.
var errOver = fmt.Errorf("wmsql: the transaction of the message has ended: %w", sql.ErrTxDone)

// begin begins a transaction on conn, which nobody else uses until it has ended. It lasts as long as life at the most.
func begin(life context.Context, d *dialect, isolation sql.IsolationLevel, conn driver.Conn, prepared map[string]driver.Stmt) (*transaction, error) {
	beginner, ok := conn.(driver.ConnBeginTx)
	if !ok {
		return nil, fmt.Errorf("wmsql: the driver's connection %T cannot begin a transaction with a context", conn)
	}
	tx, err := beginner.BeginTx(life, driver.TxOptions{Isolation: driver.IsolationLevel(isolation)})
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	t := &transaction{dialect: d, conn: conn, tx: tx, life: life, prepared: prepared}
	t.ctx, t.interrupt = context.WithCancel(life)
	t.db = sql.OpenDB(connector{t})
	return t, nil
}

// commit ends the transaction. After an error it depends on the database whether it did: an answer can be lost.
func (t *transaction) commit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return t.over
	}
	err := t.finish("COMMIT", t.tx.Commit)
	if err != nil {
		// What the server refuses, such as a constraint that is checked at the end, it refuses again.
		_, others := t.dialect.ends(err)
		t.uncounted = others || !t.dialect.answered(err)
		err = fmt.Errorf("commit: %w", err)
		t.endLocked(fmt.Errorf("%w: %w", errOver, err))
		return err
	}
	t.endLocked(errOver)
	t.tx = nil
	return nil
}

// intact tells whether the transaction is still the one that began, and not ended by a handler, in SQL or by a statement
// that commits implicitly: what the others in it did would then be gone, or out of reach of a rollback.
func (t *transaction) intact() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.savepoints == 0 {
		return t.over
	}
	err := t.sayLocked("RELEASE SAVEPOINT " + savepointName(1))
	if err != nil && t.over == nil {
		err = fmt.Errorf("%w: a handler ended it: %w", errOver, err)
		t.endLocked(err)
	}
	return err
}

// finish ends the transaction by the driver's way, or by a statement where that way would wait without end.
func (t *transaction) finish(statement string, do func() error) error {
	if exec, ok := t.conn.(driver.ExecerContext); ok && t.dialect.endless {
		_, err := exec.ExecContext(t.life, statement, nil)
		return err
	}
	return do()
}

// cut ends the transaction whatever anybody is doing in it: a statement that is running is interrupted.
func (t *transaction) cut() {
	t.interrupt()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked(errOver)
}

// close rolls back what was not committed. It returns driver.ErrBadConn where the connection must not be used again.
func (t *transaction) close() error {
	t.cut()
	failed := t.db.Close()
	switch {
	case t.tx == nil && failed == nil:
		return nil
	case failed != nil || t.reading > 0 || t.finish("ROLLBACK", t.tx.Rollback) != nil:
		return driver.ErrBadConn
	}
	return nil
}

func (t *transaction) endLocked(why error) {
	if t.over != nil {
		return
	}
	t.over = why
	if t.onOver != nil {
		t.onOver()
	}
}

// whenOver sets what to do when the transaction ends before its time. It is called with the lock held.
func (t *transaction) whenOver(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onOver = do
}

// fate tells whether the transaction has ended, and whether that was nobody's failure.
func (t *transaction) fate() (over error, uncounted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over, t.uncounted
}

// failed returns the failed statement that nobody has rolled back. A handler may have, to a savepoint of its own: the
// database knows.
func (t *transaction) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.aborted != nil && t.sayLocked("SELECT 1") == nil {
		t.aborted = nil
	}
	return t.aborted
}

// sayLocked runs a statement of the protocol between transaction and savepoints.
func (t *transaction) sayLocked(statement string) error {
	if t.over != nil {
		return t.over
	}
	exec, ok := t.conn.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("wmsql: the driver's connection %T cannot execute without preparing", t.conn)
	}
	_, err := exec.ExecContext(t.ctx, statement, nil)
	return t.observeLocked(t.ctx, err)
}

// savepointLocked begins a savepoint with a name of its own.
func (t *transaction) savepointLocked() (string, error) {
	t.savepoints++
	name := savepointName(t.savepoints)
	return name, t.sayLocked("SAVEPOINT " + name)
}

// rollbackTo undoes what came after a savepoint, failed statements included.
func (t *transaction) rollbackTo(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.aborted = nil
	err := t.sayLocked("ROLLBACK TO SAVEPOINT " + name)
	if err != nil && t.over == nil { // without its savepoint nothing is certain
		t.endLocked(fmt.Errorf("%w: %w", errOver, err))
	}
	return err
}

// observeLocked notes what an error says about the transaction, and returns it.
func (t *transaction) observeLocked(ctx context.Context, err error) error {
	if err == nil || err == driver.ErrSkip || t.over != nil {
		return err
	}
	if t.ctx.Err() != nil { // it was cut, or its life is over
		t.endLocked(errOver)
		return fmt.Errorf("%w: %w", errOver, err)
	}
	ended, others := t.dialect.ends(err)
	switch {
	case ended:
		t.uncounted = others
		t.endLocked(fmt.Errorf("%w: %w", errOver, err))
	case ctx.Err() != nil: // whoever gave the context interrupted the statement, and with it the connection, even if the server answered
		t.endLocked(fmt.Errorf("%w: a statement was interrupted: %w", errOver, err))
	case t.dialect.answered(err):
		if t.dialect.aborts && t.aborted == nil {
			t.aborted = err
		}
	case lost(err):
		t.uncounted = true
		t.endLocked(fmt.Errorf("%w: the connection is lost: %w", errOver, err))
	}
	return err
}

// lost tells whether an error that is no answer of the server means that there is no connection any more, and not just
// that the client refuses an argument, or to begin a statement while rows are open.
func lost(err error) bool {
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &network) ||
		strings.Contains(err.Error(), "conn closed") || strings.Contains(err.Error(), "invalid connection") // pgx, mysql
}
