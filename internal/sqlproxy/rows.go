package sqlproxy

import (
	"context"
	"database/sql/driver"
	"io"
)

// query is run for statements with rows.
func (t *Transaction) query(ctx context.Context, statement string, do func(driver.Conn) (driver.Rows, error)) (driver.Rows, error) {
	r := &rows{t: t}
	err := t.run(ctx, statement, func(conn driver.Conn) (err error) {
		if r.Rows, err = do(conn); err == nil {
			t.reading++
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// rows are the driver's, whose late errors count too: a query can fail at its thousandth row.
type rows struct {
	Typed
	t *Transaction
}

func (r *rows) Next(to []driver.Value) error {
	return r.read(func() error { return r.Rows.Next(to) })
}

func (r *rows) read(read func() error) error {
	t := r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return errOver
	}
	err := t.useLocked(func(driver.Conn) error { return read() })
	if err == io.EOF {
		return err
	}
	return t.observeLocked(err)
}

// Close reads what is left. Where the owner has stopped the transaction it must not: the connection will be closed.
func (r *rows) Close() error {
	t := r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	t.reading--
	return t.observeLocked(t.useLocked(func(driver.Conn) error { return r.Rows.Close() }))
}

func (r *rows) HasNextResultSet() (has bool) {
	next, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok {
		return false
	}
	err := r.t.quietly(func(driver.Conn) error { has = next.HasNextResultSet(); return nil })
	return err == nil && has
}

func (r *rows) NextResultSet() error {
	if next, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return r.read(next.NextResultSet)
	}
	return io.EOF
}
