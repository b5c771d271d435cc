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
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/pubsub/wmsql/internal/sqlproxy"
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
	marked     bool // a statement may have left something behind
	noted      int  // the savepoint behind which role and search path were noted; 0 if they were not
}

// errOver is what late statements get. It is a sql.ErrTxDone too.
var errOver = fmt.Errorf("wmsql: the transaction of the message has ended: %w", sql.ErrTxDone)

// begin begins a transaction on the session's connection. It lasts no longer than life.
func begin(life context.Context, d *dialect, s *session) (*transaction, error) {
	t := &transaction{dialect: d, conn: s.conn, life: life}
	err := t.conn.Raw(func(raw any) (err error) {
		conn, ok := raw.(driver.ConnBeginTx)
		if !ok {
			return fmt.Errorf("the driver's connection %T cannot begin a transaction with a context", raw)
		}
		// What watermill-sql's own schemas ask for costs more. On MySQL SERIALIZABLE locks the gaps between the rows that
		// are read, in the way of publishers. On PostgreSQL a key that was committed meanwhile is an error under
		// REPEATABLE READ.
		t.tx, err = conn.BeginTx(life, driver.TxOptions{Isolation: driver.IsolationLevel(sql.LevelReadCommitted)})
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

const (
	// watchInterval is how often the connection of a handler is checked that runs no statement.
	watchInterval = time.Second
	// watchTimeout is how long the database may take to answer.
	watchTimeout = 5 * time.Second
)

// watch checks the connection while a handler is busy elsewhere. If it is lost the transaction has ended, and the
// message's context ends too. A statement that is running finds out by itself.
func (t *transaction) watch() {
	if !t.proxy.TryLock() {
		return
	}
	defer t.proxy.Unlock()
	if t.proxy.Over() != nil || t.proxy.Reading() {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, watchTimeout)
	defer cancel()
	if err := t.conn.PingContext(ctx); err != nil && t.ctx.Err() == nil {
		t.uncounted = true
		t.endLocked(fmt.Errorf("%w: the connection is lost: %w", errOver, err))
	}
}

// session is a connection that a subscription keeps for itself while there is something to do, with the statements that
// are prepared on it.
type session struct {
	conn     *sql.Conn
	prepared map[string]driver.Stmt
}

// take takes a connection from the pool, unless there is one already.
func (s *session) take(ctx context.Context, db *sql.DB) error {
	if s.conn != nil {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("wmsql: take a connection: %w", err)
	}
	s.conn, s.prepared = conn, map[string]driver.Stmt{}
	return nil
}

// release gives the connection back to the pool.
func (s *session) release() {
	if s.conn == nil {
		return
	}
	_ = s.conn.Raw(func(any) error { // on a connection that is closed nothing is prepared any more
		for _, stmt := range s.prepared {
			_ = stmt.Close()
		}
		return nil
	})
	_ = s.conn.Close()
	s.conn, s.prepared = nil, nil
}

// discard closes the connection, which must not be used again.
func (s *session) discard() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	s.release()
}

// The transaction as the proxy's owner: what it does around the statements of handlers, and around its own.
var _ sqlproxy.Owner = (*transaction)(nil)

// Begin sets a savepoint with a name of its own.
func (t *transaction) Begin(options driver.TxOptions) (driver.Tx, error) {
	if options.Isolation != 0 || options.ReadOnly {
		return nil, errors.New("wmsql: the transaction is the subscriber's: its isolation cannot be chosen here")
	}
	if t.bare {
		return bare{}, nil
	}
	t.savepoints++
	if err := t.execLocked("SAVEPOINT " + savepointName(t.savepoints)); err != nil {
		return nil, fmt.Errorf("wmsql: set a savepoint: %w", err)
	}
	return savepoint{t, t.savepoints}, nil
}

// bare is the transaction itself, whose owner ends it.
type bare struct{}

func (bare) Commit() error   { return nil }
func (bare) Rollback() error { return nil }

// barely sets whether Begin sets no savepoint.
func (t *transaction) barely(on bool) {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	t.bare = on
}

// savepoint is the transaction that a handler sees.
type savepoint struct {
	t *transaction
	n int
}

// Commit keeps what was done: it commits with the message. The savepoint itself stays behind, which costs nothing,
// while releasing it costs a round trip.
func (s savepoint) Commit() error { return nil }

// Rollback undoes what was done, failed statements included.
func (s savepoint) Rollback() error { return s.t.rollbackTo(s.n) }

func (t *transaction) rollbackTo(n int) error {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	t.aborted = nil
	if n <= t.noted { // what was set behind it is undone, and so is the note
		t.noted = 0
	}
	err := t.execLocked("ROLLBACK TO SAVEPOINT " + savepointName(n))
	if err != nil && t.proxy.Over() == nil { // without its savepoint nothing is certain
		t.endLocked(fmt.Errorf("%w: %w", errOver, err))
	}
	return err
}

// Before refuses a statement for which the server would close the connection. A statement that is not plain may leave
// something behind in the session until the transaction ends, such as a setting, a temporary table, a cursor: the
// message is then the last of its batch, so that the next message does not find it. In PostgreSQL the statement may
// also change the settings under which our own statements find their tables.
func (t *transaction) Before(statement string, args []driver.NamedValue) error {
	size := len(statement)
	for _, arg := range args {
		size += lengthOf(arg.Value)
	}
	if err := t.dialect.checkSize(size); err != nil {
		return err
	}
	if sqlproxy.Plain(statement, "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "MERGE", "VALUES",
		"SAVEPOINT",
		"RELEASE") {
		return nil
	}
	t.marked = true
	if t.dialect.note == "" || t.noted > 0 || t.aborted != nil {
		return nil
	}
	if err := t.execLocked(t.dialect.note); err != nil {
		return fmt.Errorf("wmsql: note the settings that a statement may change: %w", err)
	}
	t.noted = t.savepoints
	return nil
}

// leaves reports whether a statement may have left something behind.
func (t *transaction) leaves() bool {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	return t.marked
}

// reset sets back what a handler may have set.
func (t *transaction) reset() error {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	if t.noted == 0 {
		return nil
	}
	if err := t.execLocked(keytable.RestorePostgres); err != nil {
		return fmt.Errorf("wmsql: set role and search_path back: %w", err)
	}
	return nil
}

// Failed is for the proxy.
func (t *transaction) Failed(ctx context.Context, err error) error { return t.observe(ctx, err) }

// observe notes what an error says about the transaction, and returns the error. The proxy is locked.
func (t *transaction) observe(ctx context.Context, err error) error {
	if err == nil || t.proxy.Over() != nil {
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
	case ctx.Err() != nil: // it interrupted the statement, and with it the connection, even if the server answered
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

// lost reports whether an error that is no answer of the server means that the connection is lost. The client may also
// have refused an argument, or a statement while rows are open.
func lost(err error) bool {
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network) ||
		// pgx, mysql
		strings.Contains(err.Error(), "conn closed") || strings.Contains(err.Error(), "invalid connection")
}
