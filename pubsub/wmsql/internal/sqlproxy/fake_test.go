package sqlproxy_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
)

// silent is a driver that does nothing.
type silent struct{}

func (silent) Connect(context.Context) (driver.Conn, error) { return silent{}, nil }
func (silent) Driver() driver.Driver                        { return nil }
func (silent) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (silent) Close() error                                 { return nil }
func (silent) Begin() (driver.Tx, error)                    { return silent{}, nil }
func (silent) Commit() error                                { return nil }
func (silent) Rollback() error                              { return nil }
func (silent) CheckNamedValue(*driver.NamedValue) error     { return nil }

func (silent) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}

// fake is a driver that prepares whatever has arguments, and notes what it is told. A statement does what it says.
type fake struct {
	silent
	said    []string
	running chan struct{} // closed when "wait" runs
	resume  chan struct{}
	ctx     context.Context // of the last statement
}

var errBad = errors.New("bad")

func (f *fake) Connect(context.Context) (driver.Conn, error) { return f, nil }

func (f *fake) say(what string) error {
	f.said = append(f.said, what)
	switch what {
	case "bad":
		return errBad
	case "panic":
		panic("boom")
	case "wait":
		close(f.running)
		<-f.resume
	}
	return nil
}

func (f *fake) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return nil, f.say("begin")
}

func (f *fake) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	f.ctx = ctx
	if len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return driver.RowsAffected(1), f.say(query)
}

func (f *fake) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return &fakeRows{fail: query == "late"}, f.say(query)
}

func (f *fake) Prepare(query string) (driver.Stmt, error) { return &fakeStmt{f, query}, nil }

type fakeStmt struct {
	f     *fake
	query string
}

func (s *fakeStmt) Close() error  { return s.f.say("close " + s.query) }
func (s *fakeStmt) NumInput() int { return -1 }

func (s *fakeStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (s *fakeStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func (s *fakeStmt) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), s.f.say(s.query)
}

func (s *fakeStmt) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	return &fakeRows{}, s.f.say(s.query)
}

type fakeRows struct {
	n    int
	fail bool
}

func (*fakeRows) Columns() []string { return []string{"n"} }
func (*fakeRows) Close() error      { return nil }

func (r *fakeRows) Next(to []driver.Value) error {
	if r.n++; r.n > 2 {
		return io.EOF
	}
	if r.fail && r.n == 2 {
		return errBad
	}
	to[0] = int64(r.n)
	return nil
}
