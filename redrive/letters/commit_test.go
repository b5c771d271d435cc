package letters_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
)

// beforeCommit returns a pool like db's that calls hook before each commit.
func beforeCommit(t testing.TB, db *sql.DB, hook func()) *sql.DB {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hooked := sql.OpenDB(connector{db, conn, hook})
	hooked.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = hooked.Close(); _ = conn.Close() })
	return hooked
}

// connector hands out the one connection of another pool.
type connector struct {
	of   *sql.DB
	conn *sql.Conn
	hook func()
}

func (c connector) Driver() driver.Driver { return c.of.Driver() }

func (c connector) Connect(context.Context) (driver.Conn, error) {
	var inner driver.Conn
	err := c.conn.Raw(func(conn any) error { inner = conn.(driver.Conn); return nil })
	return hookedConn{inner, c.hook}, err
}

type hookedConn struct {
	driver.Conn
	hook func()
}

func (hookedConn) Close() error { return nil } // it is the other pool's

func (c hookedConn) CheckNamedValue(v *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(v)
}

func (c hookedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c hookedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c hookedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c hookedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return hookedTx{tx, c.hook}, err
}

type hookedTx struct {
	driver.Tx
	hook func()
}

func (t hookedTx) Commit() error {
	t.hook()
	return t.Tx.Commit()
}
