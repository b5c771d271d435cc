package idempotency_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
)

// faulty is a driver that does what a test says beside what pgx does. Each fault happens where it is set.
type faulty struct {
	driver.Connector
	onBegin, onInsert, onUpdate, onCommit, onCommitted, onRollback func() error

	said []string // what got as far as the server
}

func openFaulty(t *testing.T, f *faulty) (db, observer *sql.DB) {
	t.Helper()
	address := postgrestest.Schema(t)
	connector, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(address)
	if err != nil {
		t.Fatal(err)
	}
	f.Connector = connector
	observer = postgrestest.Open(t, address)
	storeOn(observer)
	if _, err := observer.Exec(`CREATE TABLE effects (id text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	db = sql.OpenDB(f)
	t.Cleanup(func() { _ = db.Close() })
	return db, observer
}

func (f *faulty) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyConn{conn.(*stdlib.Conn), f}, nil
}

type faultyConn struct {
	*stdlib.Conn
	faults *faulty
}

func happens(fault func() error) error {
	if fault == nil {
		return nil
	}
	return fault()
}

func (c *faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := happens(c.faults.onBegin); err != nil {
		return nil, err
	}
	tx, err := c.Conn.BeginTx(ctx, opts)
	return &faultyTx{tx, c.faults}, err
}

type faultyTx struct {
	driver.Tx
	faults *faulty
}

func (tx *faultyTx) Commit() error {
	if err := happens(tx.faults.onCommit); err != nil {
		return err
	}
	if err := tx.Tx.Commit(); err != nil {
		return err
	}
	return happens(tx.faults.onCommitted)
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	for _, fault := range []struct {
		in  string
		now func() error
	}{{"BEGIN", c.faults.onBegin}, {"UPDATE spillway_keys", c.faults.onUpdate}, {"COMMIT", c.faults.onCommit}, {"ROLLBACK", c.faults.onRollback}} {
		if strings.Contains(query, fault.in) {
			if err := happens(fault.now); err != nil {
				return nil, err
			}
		}
	}
	c.faults.said = append(c.faults.said, query)
	result, err := c.Conn.ExecContext(ctx, query, args)
	if strings.Contains(query, "INSERT INTO spillway_keys") && err == nil {
		err = happens(c.faults.onInsert)
	}
	if strings.HasSuffix(query, "COMMIT") && err == nil {
		err = happens(c.faults.onCommitted)
	}
	return result, err
}

// Promise P7: a driver that panics leaves no key locked, wherever it does.
func TestPostgresDriverPanics(t *testing.T) {
	boom := func() error { panic("boom") }
	for name, f := range map[string]*faulty{
		"begin": {onBegin: boom}, "update": {onUpdate: boom}, "commit": {onCommit: boom}, "insert": {onInsert: boom}, // in a query database/sql keeps a goroutine
	} {
		t.Run(name, func(t *testing.T) {
			db, observer := openFaulty(t, f)
			db.SetMaxOpenConns(1) // the one that the panic was on must come back
			key := idempotency.Key{Consumer: "c", ID: "same"}
			func() {
				defer func() {
					if recover() != "boom" {
						t.Error("the panic was swallowed")
					}
				}()
				c, err := storeOn(db).Claim(context.Background(), idempotency.Entry{Key: key})
				if err != nil {
					t.Error(err)
				}
				defer func() {
					if err := c.Release(); err != nil {
						t.Error(err)
					}
				}()
				_ = c.Commit([]byte("x"))
			}()
			*f = faulty{Connector: f.Connector}
			for _, store := range []idempotency.Store{storeOn(observer), storeOn(db)} {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				c, err := store.Claim(ctx, idempotency.Entry{Key: key})
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

// Feature I2: a claim costs no round trip beside those of a transaction of the handler's own, also with outputs.
func TestPostgresTrips(t *testing.T) {
	f := &faulty{}
	db, observer := openFaulty(t, f)
	db.SetMaxOpenConns(1)
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	for i, outputs := range [][]*message.Message{nil, {newMessage("out")}, nil} {
		f.said = nil
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			_, err := effect(msg)
			return outputs, err
		})(newMessage(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if len(f.said) != 3 || strings.Contains(f.said[0], "PREPARE") != (i == 0) {
			t.Errorf("%q", f.said)
		}
	}
	wantRows(t, observer, 3, 3)
}
