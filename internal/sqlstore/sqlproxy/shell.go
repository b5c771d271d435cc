package sqlproxy

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// shell is a sql.DB whose connections all are the one of a Conn.
type shell struct {
	db   *sql.DB
	conn *Conn // changes only while no transaction of db is open

	raw  func(any) error // runs work; made once, because each statement needs one
	work work
	call call
}

func newShell() *shell {
	s := new(shell)
	s.db = sql.OpenDB(connector{s})
	s.raw = func(raw any) error {
		conn, ok := raw.(driver.Conn)
		if !ok {
			return fmt.Errorf("the driver's connection %T is no driver.Conn", raw)
		}
		return s.work(&s.call, conn)
	}
	return s
}

type connector struct{ s *shell }

func (c connector) Connect(context.Context) (driver.Conn, error) { return view(c), nil }
func (c connector) Driver() driver.Driver                        { return noDriver{} }

type noDriver struct{}

func (noDriver) Open(string) (driver.Conn, error) { return nil, errors.New("sqlproxy: opened by name") }

// view is the connection as database/sql sees it.
type view struct{ s *shell }

var (
	_ driver.ConnBeginTx        = view{}
	_ driver.ConnPrepareContext = view{}
	_ driver.ExecerContext      = view{}
	_ driver.QueryerContext     = view{}
	_ driver.NamedValueChecker  = view{}
)

func (v view) Close() error { return nil }

func (v view) Begin() (driver.Tx, error) {
	return v.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx sends nothing of its own: the transaction is there.
func (v view) BeginTx(_ context.Context, options driver.TxOptions) (driver.Tx, error) {
	c := v.s.conn
	nesting, ok := c.owner.(Nesting)
	if !ok {
		return handle{c}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return nil, c.over
	}
	return nesting.Begin(options)
}

func (v view) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return v.s.conn.exec(ctx, call{statement: query, args: args}, execute)
}

func execute(c *call, conn driver.Conn) (err error) {
	exec, ok := conn.(driver.ExecerContext)
	if !ok {
		return driver.ErrSkip // database/sql prepares it
	}
	c.result, err = exec.ExecContext(c.ctx, c.statement, c.args)
	return err
}

func (v view) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return v.s.conn.query(ctx, call{statement: query, args: args}, func(c *call, conn driver.Conn) (err error) {
		queryer, ok := conn.(driver.QueryerContext)
		if !ok {
			return driver.ErrSkip
		}
		c.rows, err = queryer.QueryContext(c.ctx, c.statement, c.args)
		return err
	})
}

// CheckNamedValue lets the driver convert an argument.
func (v view) CheckNamedValue(value *driver.NamedValue) error {
	_, err := v.s.conn.quietly(call{value: value}, func(c *call, conn driver.Conn) error {
		if checker, ok := conn.(driver.NamedValueChecker); ok {
			return checker.CheckNamedValue(c.value)
		}
		return driver.ErrSkip
	})
	return err
}
