package sqlproxy

import (
	"context"
	"database/sql/driver"
	"io"
)

// rows are the driver's, whose late errors count too: a query can fail at its thousandth row.
type rows struct {
	typed
	c       *Conn
	ctx     context.Context // of the query
	release func()
}

func (r *rows) Next(to []driver.Value) error {
	return r.read(call{rows: r.Rows, row: to}, func(c *call, _ driver.Conn) error { return c.rows.Next(c.row) })
}

func (r *rows) read(in call, work work) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.c.over != nil {
		return r.c.over
	}
	_, err := r.c.useLocked(r.ctx, in, work)
	if err == io.EOF {
		return err
	}
	return r.c.observeLocked(r.ctx, err)
}

// Close reads what is left, about which some drivers report errors. If the owner has ended the Conn it must not: the
// connection will be closed.
func (r *rows) Close() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	defer r.release()
	if r.c.over != nil {
		return nil
	}
	r.c.reading--
	_, err := r.c.useLocked(r.ctx, call{rows: r.Rows}, func(c *call, _ driver.Conn) error { return c.rows.Close() })
	return r.c.observeLocked(r.ctx, err)
}

func (r *rows) HasNextResultSet() bool {
	if _, ok := r.Rows.(driver.RowsNextResultSet); !ok {
		return false
	}
	out, err := r.c.quietly(call{rows: r.Rows}, func(c *call, _ driver.Conn) error {
		c.more = c.rows.(driver.RowsNextResultSet).HasNextResultSet()
		return nil
	})
	return err == nil && out.more
}

func (r *rows) NextResultSet() error {
	if _, ok := r.Rows.(driver.RowsNextResultSet); !ok {
		return io.EOF
	}
	return r.read(call{rows: r.Rows}, func(c *call, _ driver.Conn) error {
		return c.rows.(driver.RowsNextResultSet).NextResultSet()
	})
}
