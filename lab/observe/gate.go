package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"sync/atomic"
	"syscall"

	_ "modernc.org/sqlite" // registers "sqlite"
)

// gate is a SQLite file that can be unavailable, as a database server can: while it is shut, connections are refused.
type gate struct {
	file driver.Driver
	name string
	shut atomic.Bool
}

func openGate(name string) (*gate, *sql.DB, error) {
	stock, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, nil, err
	}
	g := &gate{file: stock.Driver(), name: name}
	return g, sql.OpenDB(g), stock.Close()
}

// away is the error while the gate is shut, or nil.
func (g *gate) unavailable() error {
	if !g.shut.Load() {
		return nil
	}
	return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5432},
		Err: syscall.ECONNREFUSED}
}

// Driver returns the driver of the file.
func (g *gate) Driver() driver.Driver { return g.file }

// Connect opens a connection.
func (g *gate) Connect(context.Context) (driver.Conn, error) {
	if err := g.unavailable(); err != nil {
		return nil, err
	}
	c, err := g.file.Open(g.name)
	if err != nil {
		return nil, err
	}
	return &gated{c.(connection), g}, nil
}

// connection is what database/sql asks of a connection.
type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

type gated struct {
	connection
	gate *gate
}

// IsValid reports whether the pool may keep the connection.
func (c *gated) IsValid() bool { return c.gate.unavailable() == nil }

func (c *gated) ResetSession(context.Context) error {
	if c.gate.unavailable() != nil {
		return driver.ErrBadConn
	}
	return nil
}

func (c *gated) Ping(context.Context) error { return c.gate.unavailable() }

func (c *gated) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.gate.unavailable(); err != nil {
		return nil, err
	}
	return c.connection.BeginTx(ctx, opts)
}

func (c *gated) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.gate.unavailable(); err != nil {
		return nil, err
	}
	return c.connection.PrepareContext(ctx, query)
}

func (c *gated) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.gate.unavailable(); err != nil {
		return nil, err
	}
	return c.connection.ExecContext(ctx, query, args)
}

func (c *gated) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.gate.unavailable(); err != nil {
		return nil, err
	}
	return c.connection.QueryContext(ctx, query, args)
}
