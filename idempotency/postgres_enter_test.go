package idempotency_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/lib/pq" // registers "postgres"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature I2: a connection need not have the statements that we think it has, nor lack those that we think it lacks.
func TestPostgresPrepared(t *testing.T) {
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			db := testkit.Must(sql.Open(driver, postgrestest.Schema(t)))
			defer func() { _ = db.Close() }()
			db.SetMaxOpenConns(1)
			store, fresh := storeOn(db), storeOn(db) // the second does not know what the connection has
			n := 0
			claims := func(what string) {
				t.Helper()
				for _, versioned := range []bool{false, true, false, true} {
					n++
					c, err := store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: fmt.Sprint(n)}, Version: 1, Versioned: versioned})
					testkit.Require(t, err == nil, "%s: %v", what, err)
					testkit.NoError(t, c.Commit(nil))
				}
			}
			claims("at first")
			var statements int
			if err := db.QueryRow(`SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'spillway%'`).Scan(&statements); err != nil || statements != 2 {
				t.Error(statements, err)
			}
			testkit.Must(db.Exec(`DEALLOCATE ALL`))
			claims("deallocated")
			store = fresh
			claims("forgotten")
			testkit.Must(db.Exec(`SET search_path = nowhere`))
			testkit.Says(t, testkit.Err(store.Claim(t.Context(), idempotency.Entry{Key: same})), "spillway_keys")
		})
	}
}

// Feature I2: a handler may change the search path or the role of its transaction, as those of many tenants do.
func TestPostgresSettings(t *testing.T) {
	for name, set := range map[string]string{
		"SET LOCAL":  `SET LOCAL search_path = elsewhere`,
		"set_config": `SELECT set_config('search_path', 'elsewhere', true)`,
		"role":       `SET LOCAL ROLE pg_read_all_settings`,
	} {
		for _, outputs := range []int{0, 1} {
			t.Run(fmt.Sprint(name, ", outputs ", outputs), func(t *testing.T) {
				db := newCell(t, onPostgres).db
				h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(func(msg *message.Message) (out []*message.Message, err error) {
					if _, err := effect(msg); err != nil {
						return nil, err
					}
					for range outputs {
						out = append(out, newMessage("out"))
					}
					_, err = idempotency.Tx(msg.Context()).ExecContext(msg.Context(), set)
					return out, err
				})
				for range 2 {
					out, err := h(newMessage("1"))
					testkit.Require(t, err == nil && len(out) == outputs, "%v %v", out, err)
				}
				wantRows(t, db, 1, 1)
			})
		}
	}
}

// Promise P4: rows that were left open while their bytes were lent to the handler hold nothing up.
func TestPostgresRawBytes(t *testing.T) {
	db := newCell(t, onPostgres).db
	var left *sql.Rows
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(func(msg *message.Message) (_ []*message.Message, err error) {
		if left, err = idempotency.Tx(msg.Context()).QueryContext(context.Background(), `SELECT 'abc' UNION SELECT 'def'`); err != nil {
			return nil, err
		}
		var raw sql.RawBytes
		left.Next()
		return nil, left.Scan(&raw)
	})
	testkit.Says(t, testkit.Err(h(newMessage("1"))), "rows are open")
	if err := left.Close(); err != nil { // what waits for it may end
		t.Error(err)
	}
}
