package frontdoor_test

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Promise P1, feature C7, decision 19: a handler's statements that fail because of a pooler in transaction mode say
// nothing of its message. With the breaker no healthy message becomes a letter, and all are handled once the
// address has the remedy.
func TestPoolerDeadLettersNone(t *testing.T) {
	b := newBench(t, true)
	behind := services.PgBouncer(t, postgrestest.Schema(t), "pool_mode = transaction", "default_pool_size = 2")
	var address atomic.Pointer[sql.DB]
	address.Store(postgrestest.Open(t, behind))
	other := postgrestest.Open(t, behind) // another instance of the service, which prepares the same statements
	testkit.Must(other.Exec(`CREATE TABLE stock (id text)`))
	const count = `SELECT count(*) FROM stock WHERE id = $1`
	var each [2]*sql.Tx // has a session of the pooler
	for i := range each {
		each[i] = testkit.Must(other.Begin())
		testkit.Must(each[i].Exec(count, "x"))
	}
	for _, tx := range each {
		testkit.NoError(t, tx.Rollback())
	}
	ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: b.Letters, Breaker: &breaker.Config{}}))
	var failed, handled atomic.Int64
	defer b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		var n int
		if err := address.Load().QueryRow(count, msg.UUID).Scan(&n); err != nil {
			failed.Add(1)
			return nil, err
		}
		handled.Add(1)
		return nil, nil
	})()
	const messages = 147
	for i := range messages {
		b.Publish(message.NewMessage(fmt.Sprint(i), nil))
	}
	testkit.Eventually(t, "the guard holds", func() bool { return failed.Load() > 5 && !ch.Health().OK })
	testkit.Equal(t, "dead letters", len(b.Waiting()), 0)
	address.Store(postgrestest.Open(t, behind+"&default_query_exec_mode=exec"))
	testkit.Eventually(t, "all are handled", func() bool { return handled.Load() == messages })
	testkit.Equal(t, "dead letters", len(b.Waiting()), 0)
}

// Decision 14, promise P1: New notices the pooler before a message is handled, and names the remedy. With a remedy,
// two instances apply each message once.
func TestPoolerAtStart(t *testing.T) {
	behind := services.PgBouncer(t, postgrestest.Schema(t), "pool_mode = transaction", "default_pool_size = 8", "max_client_conn = 500")
	config := func(add string) spillway.Config {
		return spillway.Config{DB: postgrestest.Open(t, behind+add), Service: "shop"}
	}
	testkit.Says(t, testkit.Err(spillway.New(t.Context(), config(""))), "default_query_exec_mode=exec")
	testkit.Must(config("&default_query_exec_mode=exec").DB.Exec(`CREATE TABLE applied (id text, mode text)`))
	for _, mode := range []string{"exec", "simple_protocol"} {
		b := newBench(t, true)
		const messages = 40
		for i := range messages {
			b.Publish(message.NewMessage(fmt.Sprint(mode, i), nil))
		}
		var handled atomic.Int64
		for range 2 { // gochannel gives each of them all messages
			ch, err := spillway.New(t.Context(), config("&default_query_exec_mode="+mode))
			testkit.Require(t, err == nil, "with %s: %v", mode, err)
			defer b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
				_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO applied VALUES ($1, $2)`, msg.UUID, mode)
				if err == nil {
					handled.Add(1)
				}
				return nil, err
			})()
		}
		testkit.Eventually(t, "all are applied", func() bool { return handled.Load() >= messages })
		db, all, once, set := config("&default_query_exec_mode=exec").DB, 0, 0, 0
		testkit.Eventually(t, "all are committed", func() bool {
			err := db.QueryRow(`SELECT count(*), count(DISTINCT id), (SELECT count(*) FROM spillway_dead_letters) FROM applied WHERE mode = $1`, mode).Scan(&all, &once, &set)
			return err == nil && all >= messages
		})
		testkit.Check(t, all == messages && once == messages && set == 0,
			"with %s: %d applied, of %d messages, %d letters", mode, all, once, set)
	}
}
