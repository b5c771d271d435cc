package wmsql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"

	"github.com/watermill-spillway/spillway/internal/sqlproxy"
)

// statement is a prepared statement that stops with its transaction.
type statement struct {
	driver.Stmt
	t    *transaction
	kept bool // by the session, which closes it
}

func (s *statement) Close() error {
	if s.kept {
		return nil
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.t.over != nil { // the connection may be another transaction's by now
		return nil
	}
	return s.Stmt.Close()
}

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return change(ctx, s.t, "", args, func(ctx context.Context) (driver.Result, error) {
		if exec, ok := s.Stmt.(driver.StmtExecContext); ok {
			return exec.ExecContext(ctx, args)
		}
		return nil, fmt.Errorf("wmsql: the driver's statement %T cannot execute with a context", s.Stmt)
	})
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.t.query(ctx, func(ctx context.Context) (driver.Rows, error) {
		if query, ok := s.Stmt.(driver.StmtQueryContext); ok {
			return query.QueryContext(ctx, args)
		}
		return nil, fmt.Errorf("wmsql: the driver's statement %T cannot query with a context", s.Stmt)
	})
}

func (s *statement) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return (&view{s.t}).CheckNamedValue(value)
}

// query is run for statements with rows. Their context must live as long as the rows are read.
func (t *transaction) query(ctx context.Context, do func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return nil, t.over
	}
	bound, release := t.bind(ctx)
	inner, err := do(bound)
	if err := t.observeLocked(bound, err); err != nil {
		release()
		return nil, err
	}
	t.reading++
	return &rows{sqlproxy.Typed{Rows: inner}, t, bound, release}, nil
}

// rows are the driver's, whose late errors count too: a query can fail at its thousandth row.
type rows struct {
	sqlproxy.Typed
	t       *transaction
	ctx     context.Context
	release func()
}

func (r *rows) Next(to []driver.Value) error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	if r.t.over != nil {
		return r.t.over
	}
	return r.observe(r.Rows.Next(to))
}

func (r *rows) observe(err error) error {
	if err == io.EOF {
		return err
	}
	return r.t.observeLocked(r.ctx, err)
}

func (r *rows) Close() error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	defer r.release()
	if r.t.over != nil { // the transaction closes the connection, with what was not read
		return nil
	}
	r.t.reading--
	return r.observe(r.Rows.Close()) // where some drivers tell of an error behind the rows that were read
}

func (r *rows) HasNextResultSet() bool {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	next, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && r.t.over == nil && next.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	if r.t.over != nil {
		return r.t.over
	}
	if next, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return r.observe(next.NextResultSet())
	}
	return io.EOF
}
