package wmsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlstore/sqlproxy"
)

// transaction is one transaction of the database on one connection, in which several messages are consumed. Everything
// that is done in it, by handlers too, goes through db, whose transactions are savepoints.
type transaction struct {
	dialect *dialect
	conn    *sql.Conn
	tx      driver.Tx
	proxy   *sqlproxy.Conn // whose lock guards what is below
	db      *sql.DB        // the proxy's

	life      context.Context // bounds the transaction whatever happens, its end included
	ctx       context.Context // ends with the transaction, and interrupts what is still running on it
	interrupt context.CancelFunc

	uncounted  bool  // no message is to blame for its end
	aborted    error // the statement that failed, if the database refuses all others until a rollback to a savepoint
	savepoints int
	bare       bool // without further ones
	onOver     func()
	marked     bool               // a statement may have left something behind
	settings   *keytable.Settings // as they were before a statement that may have changed them
}

// errOver is what late statements get. It is a sql.ErrTxDone too.
var errOver = fmt.Errorf("wmsql: the transaction of the message has ended: %w", sql.ErrTxDone)

// begin begins a transaction on the session's connection. It lasts no longer than life.
func begin(life context.Context, d *dialect, isolation sql.IsolationLevel, s *session) (*transaction, error) {
	t := &transaction{dialect: d, conn: s.conn, life: life}
	err := t.conn.Raw(func(raw any) (err error) {
		conn, ok := raw.(driver.ConnBeginTx)
		if !ok {
			return fmt.Errorf("the driver's connection %T cannot begin a transaction with a context", raw)
		}
		t.tx, err = conn.BeginTx(life, driver.TxOptions{Isolation: driver.IsolationLevel(isolation)})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	t.ctx, t.interrupt = context.WithCancel(life)
	t.proxy = sqlproxy.Open(t.ctx, t.conn, t, s.prepared)
	t.db = t.proxy.DB()
	return t, nil
}

// commit ends the transaction. After an error only the database knows whether it did: an answer can be lost.
func (t *transaction) commit() error {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	if over := t.proxy.Over(); over != nil {
		return over
	}
	err := t.finish("COMMIT", driver.Tx.Commit)
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

// intact returns an error if the transaction is not the one that began: if a handler ended it, in SQL or by a statement
// that commits implicitly. What others did in it would then be gone, or beyond a rollback.
func (t *transaction) intact() error {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	if t.savepoints == 0 {
		return t.proxy.Over()
	}
	err := t.execLocked("RELEASE SAVEPOINT " + savepointName(1))
	if err != nil && t.proxy.Over() == nil {
		err = fmt.Errorf("%w: a handler ended it: %w", errOver, err)
		t.endLocked(err)
	}
	return err
}

// finish ends the transaction in the driver's way, or by a statement if that way could wait for ever.
func (t *transaction) finish(statement string, end func(driver.Tx) error) error {
	if t.dialect.endless {
		return t.proxy.Exec(t.life, statement)
	}
	return t.conn.Raw(func(any) error { return end(t.tx) })
}

// cut ends the transaction whatever is running in it: a running statement is interrupted.
func (t *transaction) cut() {
	t.interrupt()
	t.proxy.Lock()
	defer t.proxy.Unlock()
	t.endLocked(errOver)
}

// close rolls back what was not committed, and reports whether the connection can be used again.
func (t *transaction) close() bool {
	t.cut()
	failed := t.proxy.Close()
	t.proxy.Lock()
	defer t.proxy.Unlock()
	return failed == nil && (t.tx == nil || !t.proxy.Reading() && t.finish("ROLLBACK", driver.Tx.Rollback) == nil)
}

func (t *transaction) endLocked(why error) {
	if t.proxy.Over() != nil {
		return
	}
	t.proxy.End(why)
	if t.onOver != nil {
		t.onOver()
	}
}

// whenOver sets what to do, with the proxy locked, if the transaction ends before its time.
func (t *transaction) whenOver(do func()) {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	t.onOver = do
}

// fate returns why the transaction has ended, or nil, and whether no message is to blame.
func (t *transaction) fate() (over error, uncounted bool) {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	return t.proxy.Over(), t.uncounted
}

// failed returns the error of a statement after which the database refuses all others. A handler may have rolled back
// to a savepoint of its own since: the database knows.
func (t *transaction) failed() error {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	if t.aborted != nil && t.execLocked("SELECT 1") == nil {
		t.aborted = nil
	}
	return t.aborted
}

// execLocked runs a statement of the protocol between transaction and savepoints.
func (t *transaction) execLocked(statement string) error {
	if over := t.proxy.Over(); over != nil {
		return over
	}
	return t.observe(t.ctx, t.proxy.Exec(t.ctx, statement))
}
