package wmsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// connector is one whose connections all are the one of a transaction. A *sql.Tx that begins there is a savepoint of
// the transaction: so each message, and each attempt at it, has a *sql.Tx of its own that ends with it.
type connector struct{ t *transaction }

func (c connector) Connect(context.Context) (driver.Conn, error) { return &view{t: c.t}, nil }
func (c connector) Driver() driver.Driver                        { return noDriver{} }

type noDriver struct{}

func (noDriver) Open(string) (driver.Conn, error) { return nil, errors.New("wmsql: opened by name") }

// view is one user's sight of the connection.
type view struct{ t *transaction }

var (
	_ driver.ConnBeginTx        = (*view)(nil)
	_ driver.ConnPrepareContext = (*view)(nil)
	_ driver.ExecerContext      = (*view)(nil)
	_ driver.QueryerContext     = (*view)(nil)
	_ driver.NamedValueChecker  = (*view)(nil)
)

func (v *view) Close() error { return nil }

func (v *view) Begin() (driver.Tx, error) { return v.BeginTx(context.Background(), driver.TxOptions{}) }

// BeginTx sets a savepoint.
func (v *view) BeginTx(_ context.Context, options driver.TxOptions) (driver.Tx, error) {
	if options.Isolation != 0 || options.ReadOnly {
		return nil, errors.New("wmsql: the transaction is the subscriber's: its isolation cannot be chosen here")
	}
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	name, err := t.savepointLocked()
	if err != nil {
		return nil, fmt.Errorf("wmsql: set a savepoint: %w", err)
	}
	return &savepoint{t, name}, nil
}

// savepoint is the transaction that a handler sees.
type savepoint struct {
	t    *transaction
	name string
}

// Commit keeps what was done: it commits with the message. The savepoint itself stays behind, which costs nothing, while
// releasing it costs a round trip.
func (s *savepoint) Commit() error { return nil }

// Rollback undoes it.
func (s *savepoint) Rollback() error { return s.t.rollbackTo(s.name) }

// bind lets a statement end with the transaction as well as with its own context.
func (t *transaction) bind(ctx context.Context) (context.Context, func()) {
	if ctx.Done() == nil {
		return t.ctx, func() {}
	}
	bound, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.ctx, cancel)
	return bound, func() { stop(); cancel() }
}

func (v *view) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	exec, ok := v.t.conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	if err := v.t.notice(ctx, query); err != nil {
		return nil, err
	}
	return change(ctx, v.t, query, args, func(ctx context.Context) (driver.Result, error) { return exec.ExecContext(ctx, query, args) })
}

func (v *view) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	queryer, ok := v.t.conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	if err := v.t.notice(ctx, query); err != nil {
		return nil, err
	}
	return v.t.query(ctx, func(ctx context.Context) (driver.Rows, error) { return queryer.QueryContext(ctx, query, args) })
}

func (v *view) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := v.t.conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

func (v *view) Prepare(query string) (driver.Stmt, error) {
	return v.PrepareContext(context.Background(), query)
}

// maxPrepared bounds how many statements a connection keeps prepared.
const maxPrepared = 64

// PrepareContext prepares a statement once per connection: drivers that prepare whatever has arguments would else do so
// for every message.
func (v *view) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	t := v.t
	if err := t.notice(ctx, query); err != nil {
		return nil, err
	}
	return run(ctx, t, func(ctx context.Context) (driver.Stmt, error) {
		if stmt, ok := t.prepared[query]; ok {
			return &statement{stmt, t, true}, nil
		}
		preparer, ok := t.conn.(driver.ConnPrepareContext)
		if !ok {
			return nil, fmt.Errorf("wmsql: the driver's connection %T cannot prepare with a context", t.conn)
		}
		stmt, err := preparer.PrepareContext(ctx, query)
		if err != nil {
			return nil, err
		}
		kept := len(t.prepared) < maxPrepared
		if kept {
			t.prepared[query] = stmt
		}
		return &statement{stmt, t, kept}, nil
	})
}

// change is run for statements without rows, which may be large.
func change(ctx context.Context, t *transaction, text string, args []driver.NamedValue, do func(context.Context) (driver.Result, error)) (driver.Result, error) {
	size := len(text)
	for _, arg := range args {
		size += lengthOf(arg.Value)
	}
	if err := t.dialect.checkSize(size); err != nil {
		return nil, err
	}
	return run(ctx, t, do)
}

// run runs one statement, if the transaction still takes any.
func run[T any](ctx context.Context, t *transaction, do func(context.Context) (T, error)) (result T, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return result, t.over
	}
	bound, release := t.bind(ctx)
	defer release()
	result, err = do(bound)
	return result, t.observeLocked(bound, err)
}
