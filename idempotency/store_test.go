package idempotency_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
)

// Features I1, I2: MySQL keeps the contract of a Store, however the connections are set.
func TestMySQLStore(t *testing.T) {
	for name, settings := range map[string]string{
		"defaults":                         "parseTime=false",
		"all switches":                     "parseTime=true&interpolateParams=true&clientFoundRows=true&columnsWithAlias=true",
		"clientFoundRows, multiStatements": "clientFoundRows=true&multiStatements=true",
		"ANSI":                             "sql_mode=%27ANSI%27&interpolateParams=true",
		"NO_BACKSLASH_ESCAPES":             "sql_mode=%27NO_BACKSLASH_ESCAPES%27&interpolateParams=true",
		"latin1":                           "charset=latin1",
		"SERIALIZABLE":                     "tx_isolation=%27SERIALIZABLE%27",
		"short waits":                      "innodb_lock_wait_timeout=1",
	} {
		t.Run(name, func(t *testing.T) {
			testStore(t, func(t *testing.T) (idempotency.Store, *sql.DB) {
				dsn := mysqltest.Database(t)
				db := mysqltest.Open(t, dsn)
				if _, err := db.Exec(`CREATE TABLE effects (id VARBINARY(255) NOT NULL)`); err != nil {
					t.Fatal(err)
				}
				return storeOn(mysqltest.Open(t, mysqltest.With(dsn, settings))), db
			})
		})
	}
}

// testStore is the contract of a Store as tests. Every store must pass it. open returns a store on an empty database with
// a table effects(id).
func testStore(t *testing.T, open func(*testing.T) (idempotency.Store, *sql.DB)) {
	ctx := context.Background()
	start := func(t *testing.T) (idempotency.Store, *sql.DB) {
		store, db := open(t)
		return store, db
	}
	claim := func(t *testing.T, store idempotency.Store, key idempotency.Key) idempotency.Claim {
		t.Helper()
		c, err := store.Claim(ctx, idempotency.Entry{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Release() })
		return c
	}
	write := func(t *testing.T, c idempotency.Claim) {
		t.Helper()
		if _, err := c.Tx().Exec(`INSERT INTO effects VALUES ('e')`); err != nil {
			t.Fatal(err)
		}
	}
	key := idempotency.Key{Consumer: "shop/billing", ID: "m1"}

	t.Run("commit records", func(t *testing.T) {
		store, db := start(t)
		record := []byte{0, 0xff, 'a'}
		c := claim(t, store, key)
		if _, done := recorded(c); done {
			t.Fatal("recorded before anything was")
		}
		write(t, c)
		if err := errors.Join(c.Commit(record), c.Release(), c.Release()); err != nil {
			t.Fatal(err)
		}
		again := claim(t, store, key)
		if got, done := recorded(again); !done || !bytes.Equal(got, record) {
			t.Fatal(got, done)
		}
		if err := again.Commit(nil); err == nil {
			t.Fatal("a key that was applied can be committed")
		}
		last := claim(t, store, key)
		if got, done := recorded(last); !done || !bytes.Equal(got, record) {
			t.Fatal("the record changed")
		}
		_ = last.Release()
		wantRows(t, db, 1, 1)
	})

	t.Run("outlives its context", func(t *testing.T) {
		store, db := start(t)
		ending, cancel := context.WithCancel(ctx)
		c, err := store.Claim(ending, idempotency.Entry{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(10 * time.Millisecond)
		write(t, c)
		if err := c.Commit([]byte("x")); err != nil {
			t.Fatal(err)
		}
		wantRows(t, db, 1, 1)
	})

}

func inBackground(f func() bool) <-chan bool {
	ch := make(chan bool, 1)
	go func() { ch <- f() }()
	return ch
}

var same = idempotency.Key{Consumer: "c", ID: "same"}

// claimOnce claims a key, commits it unless it was applied before, and reports whether it did.
func claimOnce(s idempotency.Store, key idempotency.Key) (first bool, err error) {
	c, err := s.Claim(context.Background(), idempotency.Entry{Key: key})
	if err != nil {
		return false, err
	}
	if _, done := recorded(c); done {
		return false, c.Release()
	}
	return true, c.Commit(nil)
}

// Decision 8: waiting for another process ends with the context too.
func TestSQLiteOtherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	here, there := storeOn(open(t, path)), storeOn(open(t, path))
	c, err := there.Claim(context.Background(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "m1"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := here.Claim(ctx, idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "m2"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err) // it ended while the other process holds on
	}
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	c, err = here.Claim(context.Background(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "m2"}})
	if err != nil {
		t.Fatal("the gate stayed locked: ", err)
	}
	_ = c.Release()
}
