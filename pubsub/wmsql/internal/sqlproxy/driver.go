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

// statement is a prepared statement of the driver's. The owner sees it when it runs, not when it is prepared.
type statement struct {
	driver.Stmt
	c     *Conn
	query string
	kept  bool // for the owner, who closes it
}

func (v view) Prepare(query string) (driver.Stmt, error) {
	return v.PrepareContext(context.Background(), query)
}

// maxPrepared bounds how many statements are kept for an owner.
const maxPrepared = 64

// PrepareContext prepares a statement once for each connection whose owner keeps them. Drivers that prepare whatever
// has arguments would otherwise do so for each message.
func (v view) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c := v.s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return nil, c.over
	}
	if stmt, ok := c.prepared[query]; ok {
		return &statement{stmt, c, query, true}, nil
	}
	ctx, release := c.bind(ctx)
	defer release()
	out, err := c.useLocked(ctx, call{statement: query}, func(c *call, conn driver.Conn) (err error) {
		if preparer, ok := conn.(driver.ConnPrepareContext); ok {
			c.stmt, err = preparer.PrepareContext(c.ctx, c.statement)
		} else {
			c.stmt, err = conn.Prepare(c.statement)
		}
		return err
	})
	if err = c.observeLocked(ctx, err); err != nil {
		return nil, err
	}
	kept := c.prepared != nil && len(c.prepared) < maxPrepared
	if kept {
		c.prepared[query] = out.stmt
	}
	return &statement{out.stmt, c, query, kept}, nil
}

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(ctx, call{statement: s.query, args: args, stmt: s.Stmt}, func(c *call, _ driver.Conn) (err error) {
		if exec, ok := c.stmt.(driver.StmtExecContext); ok {
			c.result, err = exec.ExecContext(c.ctx, c.args)
			return err
		}
		values, err := Positional(c.args)
		if err == nil {
			//lint:ignore SA1019 drivers from before contexts have no other way
			c.result, err = c.stmt.Exec(values)
		}
		return err
	})
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(ctx, call{statement: s.query, args: args, stmt: s.Stmt}, func(c *call, _ driver.Conn) (err error) {
		if query, ok := c.stmt.(driver.StmtQueryContext); ok {
			c.rows, err = query.QueryContext(c.ctx, c.args)
			return err
		}
		values, err := Positional(c.args)
		if err == nil {
			//lint:ignore SA1019 as Exec
			c.rows, err = c.stmt.Query(values)
		}
		return err
	})
}

// Positional returns arguments as older drivers, and those without names, take them.
func Positional(args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i, arg := range args {
		if arg.Name != "" {
			return nil, errors.New("the driver takes no named arguments")
		}
		values[i] = arg.Value
	}
	return values, nil
}

func (s *statement) CheckNamedValue(value *driver.NamedValue) error {
	_, err := s.c.quietly(call{value: value, stmt: s.Stmt}, func(c *call, conn driver.Conn) error {
		if checker, ok := c.stmt.(driver.NamedValueChecker); ok {
			return checker.CheckNamedValue(c.value)
		}
		if checker, ok := conn.(driver.NamedValueChecker); ok {
			return checker.CheckNamedValue(c.value)
		}
		return driver.ErrSkip
	})
	return err
}

// Close comes at the latest when the user's transaction ends, and then the owner may be using the connection.
func (s *statement) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.kept || s.c.broken || s.c.away {
		return nil
	}
	_, err := s.c.useLocked(context.Background(), call{stmt: s.Stmt}, func(c *call, _ driver.Conn) error {
		return c.stmt.Close()
	})
	return err
}
