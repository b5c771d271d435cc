package sqlproxy_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/watermill-spillway/spillway/internal/sqlproxy"
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

type nobody struct{}

func (nobody) Before(context.Context, string, []driver.NamedValue) error { return nil }
func (nobody) Failed(_ context.Context, err error) error                 { return err }
func (nobody) Committed() error                                          { return nil }

// What the shadow costs beside a transaction of database/sql itself.
func BenchmarkTransaction(b *testing.B) {
	db := sql.OpenDB(silent{})
	defer func() { _ = db.Close() }()
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tx, err := db.BeginTx(b.Context(), nil)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = tx.ExecContext(b.Context(), "INSERT", 1)
			_ = tx.Commit()
		}
	})
	b.Run("shadow", func(b *testing.B) {
		var pool sqlproxy.Pool
		b.ReportAllocs()
		for b.Loop() {
			conn, err := db.Conn(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			t, err := pool.Begin(b.Context(), conn, nobody{})
			if err != nil {
				b.Fatal(err)
			}
			_, _ = t.Tx().ExecContext(b.Context(), "INSERT", 1)
			t.Close()
			_ = conn.Close()
		}
	})
}
