package idempotency_test

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/lib/pq"
	_ "github.com/lib/pq" // registers "postgres"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

const deadline = testkit.Patience

var eventually = testkit.Eventually

// waiting is how many statements wait for the transaction of a process.
func waiting(t *testing.T, db *sql.DB, id int) (n int) {
	t.Helper()
	err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`, id).Scan(&n)
	testkit.Require(t, err == nil, "%v", err)
	return n
}

// Feature I2: a handler may change the search path or the role of its transaction, as those of many tenants do.
func TestPostgresSettings(t *testing.T) {
	onEach(t, []database{onPostgres, columns[3]}, (*cell).settings)
}

func (c *cell) settings() {
	r := c.receiver(idempotency.ReceiverConfig{})
	for _, set := range []string{
		`SET LOCAL search_path = elsewhere`, `SELECT set_config('search_path', 'elsewhere', true)`,
		`SET LOCAL ROLE pg_read_all_settings`,
	} {
		for outputs := range 2 {
			h := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
				_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), set)
				return []*message.Message{newMessage("out")}[:outputs], err
			}))
			for range 2 {
				out, err := h(newMessage("1"))
				testkit.Require(c, err == nil && len(out) == outputs, "%s: %v %v", set, out, err)
			}
			c.rows(1, 1)
			c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
		}
	}
}

// slowDialer gives connections on which a statement that enters a key leaves late.
type slowDialer struct{ by time.Duration }

func (d slowDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return slowConn{conn, d.by}, err
}

func (d slowDialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	return slowConn{conn, d.by}, err
}

type slowConn struct {
	net.Conn
	by time.Duration
}

func (c slowConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("spillway_keys")) {
		time.Sleep(c.by)
	}
	return c.Conn.Write(b)
}

// Promises P3, P4: the wait for another's key ends with the context, in the server too, and leaves nothing behind. For
// the caller it ends as well when the driver's request to cancel overtakes the statement, as lib/pq's can: PostgreSQL
// drops a request that finds nothing to cancel.
func TestPostgresWaitEndsWithContext(t *testing.T) {
	connector := testkit.Must(pq.NewConnector(postgrestest.Schema(t)))
	connector.Dialer(slowDialer{by: 300 * time.Millisecond})
	overtaken := sql.OpenDB(connector)
	defer func() { _ = overtaken.Close() }()
	for _, db := range []*sql.DB{newCell(t, onPostgres).db, overtaken} {
		store, entry := storeOn(db), idempotency.Entry{Key: same}
		held := testkit.Must(store.Claim(t.Context(), entry))
		var id int
		testkit.NoError(t, held.Tx().QueryRow(`SELECT pg_backend_pid()`).Scan(&id))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- testkit.Err(store.Claim(ctx, entry)) }()
		testkit.Is(t, testkit.Receive(t, "the wait's end", ended), context.DeadlineExceeded)
		if db != overtaken { // else the server waits as long as the key is held
			eventually(t, "the server's wait ends", func() bool { return waiting(t, db, id) == 0 })
		}
		testkit.Equal(t, "connections are in use", db.Stats().InUse, 1)
		testkit.NoError(t, held.Commit(nil))
	}
}

// Promise P7: a handler that leaves rows open whose bytes it was lent, for which database/sql waits, is not waited for.
func TestPostgresLentRows(t *testing.T) {
	c := newCell(t, onPostgres)
	r := c.receiver(idempotency.ReceiverConfig{})
	_, err := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
		rows, err := idempotency.Tx(msg.Context()).Query(`SELECT generate_series(1, 100000)::text`)
		testkit.Require(t, err == nil && rows.Next() && rows.Scan(new(sql.RawBytes)) == nil, "%v", err)
		t.Cleanup(func() { _ = rows.Close() })
		return nil, nil
	}))(newMessage("m1"))
	testkit.Says(t, err, "close them")
	c.applies(r.Middleware(c.write), newMessage("m1"))
	c.rows(1, 1)
}
