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

	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlstore/sqlproxy"
)

// The transaction as the proxy's owner: what it does around the statements of handlers, and around its own.
var _ sqlproxy.Nesting = (*transaction)(nil)

// Begin sets a savepoint with a name of its own.
func (t *transaction) Begin(options driver.TxOptions) (driver.Tx, error) {
	if options.Isolation != 0 || options.ReadOnly {
		return nil, errors.New("wmsql: the transaction is the subscriber's: its isolation cannot be chosen here")
	}
	if t.bare {
		return bare{}, nil
	}
	t.savepoints++
	name := savepointName(t.savepoints)
	if err := t.execLocked("SAVEPOINT " + name); err != nil {
		return nil, fmt.Errorf("wmsql: set a savepoint: %w", err)
	}
	return savepoint{t, name}, nil
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
	t    *transaction
	name string
}

// Commit keeps what was done: it commits with the message. The savepoint itself stays behind, which costs nothing,
// while releasing it costs a round trip.
func (s savepoint) Commit() error { return nil }

// Rollback undoes what was done, failed statements included.
func (s savepoint) Rollback() error { return s.t.rollbackTo(s.name) }

func (t *transaction) rollbackTo(name string) error {
	t.proxy.Lock()
	defer t.proxy.Unlock()
	t.aborted = nil
	err := t.execLocked("ROLLBACK TO SAVEPOINT " + name)
	if err != nil && t.proxy.Over() == nil { // without its savepoint nothing is certain
		t.endLocked(fmt.Errorf("%w: %w", errOver, err))
	}
	return err
}

// Before refuses a statement for which the server would close the connection. A statement that is not plain may leave
// something behind in the session until the transaction ends, such as a setting, a temporary table, a cursor: the
// message is then the last of its batch, so that the next message does not find it. In PostgreSQL the statement may
// also change the settings under which our own statements find their tables.
func (t *transaction) Before(ctx context.Context, statement string, args []driver.NamedValue) error {
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
	if t.dialect.settings == "" || t.settings != nil || t.aborted != nil {
		return nil
	}
	settings := new(keytable.Settings)
	err := t.conn.QueryRowContext(ctx, t.dialect.settings).Scan(&settings.SearchPath, &settings.Role)
	if err = t.observe(ctx, err); err != nil {
		return fmt.Errorf("wmsql: read the settings that a statement may change: %w", err)
	}
	t.settings = settings
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
	if t.settings == nil {
		return nil
	}
	if err := t.execLocked(t.settings.Restore()); err != nil {
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
