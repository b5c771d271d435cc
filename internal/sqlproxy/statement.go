package sqlproxy

import (
	"context"
	"database/sql/driver"
	"errors"
)

// statement is a prepared statement of the driver's. The owner is told when it runs, not when it is prepared.
type statement struct {
	driver.Stmt
	t     *Transaction
	query string
}

func (v view) Prepare(query string) (driver.Stmt, error) {
	return v.PrepareContext(context.Background(), query)
}

func (v view) PrepareContext(ctx context.Context, query string) (stmt driver.Stmt, err error) {
	t := v.s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil, errOver
	}
	if carrier, ok := t.owner.(Carrier); ok {
		t.broken = true
		err := carrier.Enter(ctx)
		if t.broken = false; err != nil {
			return nil, err
		}
	}
	err = t.observeLocked(t.useLocked(func(conn driver.Conn) (err error) {
		if preparer, ok := conn.(driver.ConnPrepareContext); ok {
			stmt, err = preparer.PrepareContext(ctx, query)
		} else {
			stmt, err = conn.Prepare(query)
		}
		return err
	}))
	if err != nil {
		return nil, err
	}
	return &statement{stmt, t, query}, nil
}

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (result driver.Result, err error) {
	err = s.t.run(ctx, s.query, func(driver.Conn) error {
		if exec, ok := s.Stmt.(driver.StmtExecContext); ok {
			result, err = exec.ExecContext(ctx, args)
			return err
		}
		values, err := Positional(args)
		if err == nil {
			result, err = s.Exec(values)
		}
		return err
	})
	return result, err
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.t.query(ctx, s.query, func(driver.Conn) (driver.Rows, error) {
		if query, ok := s.Stmt.(driver.StmtQueryContext); ok {
			return query.QueryContext(ctx, args)
		}
		values, err := Positional(args)
		if err != nil {
			return nil, err
		}
		return s.Query(values)
	})
}

// Positional is how older drivers, and those without names, take arguments.
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
	return s.t.quietly(func(conn driver.Conn) error {
		if checker, ok := s.Stmt.(driver.NamedValueChecker); ok {
			return checker.CheckNamedValue(value)
		}
		if checker, ok := conn.(driver.NamedValueChecker); ok {
			return checker.CheckNamedValue(value)
		}
		return driver.ErrSkip
	})
}

// Close comes at the latest when the transaction ends, and then the owner may be using the connection.
func (s *statement) Close() error {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.t.broken {
		return nil
	}
	return s.t.useLocked(func(driver.Conn) error { return s.Stmt.Close() })
}
