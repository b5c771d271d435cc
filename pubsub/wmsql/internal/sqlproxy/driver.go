package sqlproxy

import (
	"context"
	"database/sql/driver"
	"errors"
)

type connector struct{ c *Conn }

func (c connector) Connect(context.Context) (driver.Conn, error) { return view(c), nil }
func (c connector) Driver() driver.Driver                        { return noDriver{} }

type noDriver struct{}

func (noDriver) Open(string) (driver.Conn, error) { return nil, errors.New("sqlproxy: opened by name") }

// view is the connection as database/sql sees it.
type view struct{ c *Conn }

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

// BeginTx sends what the owner sends: the transaction is there.
func (v view) BeginTx(_ context.Context, options driver.TxOptions) (driver.Tx, error) {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	if v.c.over != nil {
		return nil, v.c.over
	}
	return v.c.owner.Begin(options)
}

func (v view) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return v.c.exec(ctx, call{statement: query, args: args}, execute)
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
	return v.c.query(ctx, call{statement: query, args: args}, func(c *call, conn driver.Conn) (err error) {
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
	_, err := v.c.quietly(call{value: value}, func(c *call, conn driver.Conn) error {
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
	c := v.c
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
		exec, ok := c.stmt.(driver.StmtExecContext)
		if !ok {
			return errOld
		}
		c.result, err = exec.ExecContext(c.ctx, c.args)
		return err
	})
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(ctx, call{statement: s.query, args: args, stmt: s.Stmt}, func(c *call, _ driver.Conn) (err error) {
		query, ok := c.stmt.(driver.StmtQueryContext)
		if !ok {
			return errOld
		}
		c.rows, err = query.QueryContext(c.ctx, c.args)
		return err
	})
}

// errOld says that a driver is of the time before contexts.
var errOld = errors.New("the driver's prepared statements take no context: use a driver whose statements do, such as " +
	"pgx/v5/stdlib, lib/pq or go-sql-driver/mysql")

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
	if s.kept || s.c.broken || s.c.unavailable {
		return nil
	}
	_, err := s.c.useLocked(context.Background(), call{stmt: s.Stmt}, func(c *call, _ driver.Conn) error {
		return c.stmt.Close()
	})
	return err
}
