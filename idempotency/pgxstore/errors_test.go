package pgxstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promises P1, P7: the first statement's error is its own, the message is not applied, and comes again in full.
func TestFirstStatementFails(t *testing.T) {
	db, _ := open(t, "")
	r := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{})
	for name, v := range map[string]struct {
		text  string
		args  []any
		state string
		says  string
	}{
		"own duplicate": {effect, []any{"taken"}, "23505", "effects"},
		"syntax":        {`INSERT nonsense`, []any{1}, "42601", "nonsense"},
		"no table":      {`INSERT INTO nowhere VALUES ($1)`, []any{1}, "42P01", "nowhere"},
		"arguments":     {effect, []any{"a", "b"}, "", "argument"},
		"type":          {effect, []any{struct{}{}}, "", "encode"},
		"too large":     {`INSERT INTO effects VALUES ($1::int4)`, []any{int64(1) << 40}, "", "int4"},
		"division":      {`INSERT INTO effects VALUES (1 / $1::int)`, []any{0}, "22012", "division"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Must(db.Exec(`TRUNCATE effects, spillway_keys; INSERT INTO effects VALUES ('taken')`))
			fails := func(msg *message.Message) ([]*message.Message, error) {
				_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), v.text, v.args...)
				return nil, err
			}
			for range 2 { // statements that fail may be prepared
				_, err := r.Middleware(fails)(newMessage("m"))
				testkit.Says(t, err, v.says)
				var answer *pgconn.PgError
				testkit.Check(t, (errors.As(err, &answer) && answer.Code == v.state) == (v.state != "") &&
					!strings.Contains(fmt.Sprint(err), "claim key"), "%v", err)
				testkit.Equal(t, "keys", rows(t, db, "spillway_keys"), 0)
			}
			savepoint := func(msg *message.Message) ([]*message.Message, error) { // a handler that means to go on
				tx := idempotency.Tx(msg.Context())
				if _, err := tx.Exec(`SAVEPOINT mine`); err != nil {
					return nil, err
				}
				testkit.Check(t, testkit.Err(tx.Exec(v.text, v.args...)) != nil, "no error")
				if _, err := tx.Exec(`ROLLBACK TO mine`); err != nil {
					return nil, err
				}
				return write(msg)
			}
			for range 2 {
				testkit.Must(r.Middleware(savepoint)(newMessage("m")))
			}
			wants(t, db, 2, 1)
		})
	}
}

// Promises P1, P7, feature I2: what happened to an idle connection is an error, or nothing, and never a
// message that is half applied.
func TestConnections(t *testing.T) {
	for name, spoil := range map[string]string{
		"deallocated": `DEALLOCATE ALL`, "discarded": `DISCARD ALL`, "strict": `SET default_transaction_isolation = 'serializable'`,
		"killed": `SELECT pg_terminate_backend(pg_backend_pid())`,
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := open(t, "")
			r := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{})
			for i := range 4 {
				id := fmt.Sprint(i)
				_, err := r.Middleware(write)(newMessage(id))
				if err != nil { // once
					_, err = r.Middleware(write)(newMessage(id))
				}
				testkit.Require(t, err == nil, "%v %v", i, err)
				_, _ = db.Exec(spoil)
			}
			wants(t, db, 4, 4)
		})
	}
}
