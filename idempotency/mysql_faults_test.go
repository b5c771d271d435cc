package idempotency_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
)

// faultyMySQL is a driver that does what a test says beside what go-sql-driver does. Each fault happens where it is set,
// for statements that begin with the text.
type faultyMySQL struct {
	driver.Connector
	before, instead, after map[string]func() error

	said []string // what got as far as the server
	last *faultyMySQLConn
}

func openFaultyMySQL(t *testing.T, f *faultyMySQL) (db, observer *sql.DB) {
	t.Helper()
	dsn := mysqltest.Database(t)
	config, err := mysql.ParseDSN(mysqltest.With(dsn, "interpolateParams=true")) // one call of the driver a statement
	if err != nil {
		t.Fatal(err)
	}
	if f.Connector, err = mysql.NewConnector(config); err != nil {
		t.Fatal(err)
	}
	observer = mysqltest.Open(t, dsn)
	storeOn(observer)
	if _, err := observer.Exec(`CREATE TABLE effects (id VARBINARY(255) NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	db = sql.OpenDB(f)
	t.Cleanup(func() { _ = db.Close() })
	return db, observer
}

// mysqlConn is what go-sql-driver's connection can do.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.QueryerContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.SessionResetter
	driver.Validator
}

func (f *faultyMySQL) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyMySQLConn{conn.(mysqlConn), f}, nil
}

type faultyMySQLConn struct {
	mysqlConn
	faults *faultyMySQL
}

func (c *faultyMySQLConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	word, _, _ := strings.Cut(query, " ")
	if err := happens(c.faults.before[word]); err != nil {
		return nil, err
	}
	c.faults.last = c
	if fault := c.faults.instead[word]; fault != nil {
		return nil, fault()
	}
	c.faults.said = append(c.faults.said, query)
	result, err := c.mysqlConn.ExecContext(ctx, query, args)
	if err == nil {
		err = happens(c.faults.after[word])
	}
	return result, err
}

func (c *faultyMySQLConn) exec(query string) error {
	_, err := c.mysqlConn.ExecContext(context.Background(), query, nil)
	return err
}

func on(word string, fault func() error) map[string]func() error {
	return map[string]func() error{word: fault}
}

// Feature I2: a commit that the server refuses is an error with its cause, and nothing stays.
func TestMySQLCommitRefused(t *testing.T) {
	refused := &mysql.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock"} // as a Galera cluster does
	f := &faultyMySQL{before: on("COMMIT", func() error { return refused })}
	db, observer := openFaultyMySQL(t, f)
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	if _, err := r.Middleware(effectMySQL)(newMessage("m1")); !errors.Is(err, refused) || strings.Contains(err.Error(), "perhaps") {
		t.Fatal(err)
	}
	wantRows(t, observer, 0, 0)
}

// Promise P7: a driver that panics leaves no key locked, wherever it does.
func TestMySQLDriverPanics(t *testing.T) {
	boom := func() error { panic("boom") }
	for name, f := range map[string]*faultyMySQL{
		"begin": {before: on("BEGIN", boom)}, "commit": {before: on("COMMIT", boom)}, "insert": {after: on("BEGIN", boom)},
		"hold": {before: on("SET", boom)}, "mark": {before: on("SAVEPOINT", boom)}, "probe": {before: on("RELEASE", boom)},
		"update": {before: on("UPDATE", boom)},
	} {
		t.Run(name, func(t *testing.T) {
			db, observer := openFaultyMySQL(t, f)
			db.SetMaxOpenConns(1) // the one that the panic was on must come back
			func() {
				defer func() {
					if recover() != "boom" {
						t.Error("the panic was swallowed")
					}
				}()
				c, err := storeOn(db).Claim(context.Background(), idempotency.Entry{Key: same})
				if err != nil {
					t.Error(err)
				}
				defer func() {
					if err := c.Release(); err != nil {
						t.Error(err)
					}
				}()
				_, _ = c.Tx().Exec(`SET @any = 1`) // may end the transaction, for all that we know
				_ = c.Commit([]byte("x"))
			}()
			*f = faultyMySQL{Connector: f.Connector}
			for _, store := range []idempotency.Store{storeOn(observer), storeOn(db)} {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				c, err := store.Claim(ctx, idempotency.Entry{Key: same})
				if err != nil {
					t.Fatal("the key is locked: ", err)
				}
				if _, done := recorded(c); done {
					t.Error("the key was applied")
				}
				if err := c.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Feature I2: a connection that cannot be given back as it was is closed, and the commit stands.
func TestMySQLConnectionNotRestored(t *testing.T) {
	f := &faultyMySQL{}
	db, observer := openFaultyMySQL(t, f)
	c, err := storeOn(db).Claim(context.Background(), idempotency.Entry{Key: same})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tx().Exec(`SET @any = 1`); err != nil {
		t.Fatal(err)
	}
	f.before = on("SET", func() error { return errors.New("bad") })
	if err := c.Commit([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n := db.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections are open", n)
	}
	wantRows(t, observer, 0, 1)
}
