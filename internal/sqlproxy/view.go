package sqlproxy

import (
	"context"
	"database/sql/driver"
	"errors"
)

// connector is a driver whose connections all are the one of a shell's transaction.
type connector struct{ s *shell }

func (c connector) Connect(context.Context) (driver.Conn, error) { return view(c), nil }
func (c connector) Driver() driver.Driver                        { return noDriver{} }

type noDriver struct{}

func (noDriver) Open(string) (driver.Conn, error) { return nil, errors.New("shadow: opened by name") }

// view is the connection as the shadow sees it.
type view struct{ s *shell }

var (
	_ driver.ConnBeginTx        = view{}
	_ driver.ConnPrepareContext = view{}
	_ driver.ExecerContext      = view{}
	_ driver.QueryerContext     = view{}
	_ driver.NamedValueChecker  = view{}
)

func (v view) Close() error { return nil }

func (v view) Begin() (driver.Tx, error) { return handle{v.s.t}, nil }

// BeginTx sends nothing: the transaction is there.
func (v view) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return handle{v.s.t}, nil
}

// handle is the transaction as the user ends it.
type handle struct{ t *Transaction }

func (h handle) Commit() error {
	h.end()
	return h.t.owner.Committed()
}

func (h handle) Rollback() error {
	h.end()
	return nil
}

func (h handle) end() {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	h.t.ended = h.t.ended || !h.t.over
}

func (v view) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	carry := func() (carried bool, err error) {
		result, carried, err = v.s.t.owner.(Carrier).Carry(ctx, query, args)
		return carried, err
	}
	err = v.s.t.runOr(ctx, query, carry, func(conn driver.Conn) (err error) {
		exec, ok := conn.(driver.ExecerContext)
		if !ok {
			return driver.ErrSkip // database/sql prepares it
		}
		result, err = exec.ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (v view) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return v.s.t.query(ctx, query, func(conn driver.Conn) (driver.Rows, error) {
		queryer, ok := conn.(driver.QueryerContext)
		if !ok {
			return nil, driver.ErrSkip
		}
		return queryer.QueryContext(ctx, query, args)
	})
}

// CheckNamedValue lets the driver convert an argument.
func (v view) CheckNamedValue(value *driver.NamedValue) error {
	return v.s.t.quietly(func(conn driver.Conn) error {
		if checker, ok := conn.(driver.NamedValueChecker); ok {
			return checker.CheckNamedValue(value)
		}
		return driver.ErrSkip
	})
}

// quietly is run for what sends no statement: the owner need not know.
func (t *Transaction) quietly(work func(driver.Conn) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return errOver
	}
	return t.useLocked(work)
}
