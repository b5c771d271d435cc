package wmsql_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// onPostgres runs a test on PostgreSQL, which alone has transaction ids.
func onPostgres(t *testing.T) *bench {
	address := postgrestest.Schema(t)
	return newBench(t, func(t testing.TB) *sql.DB { return postgrestest.Open(t, address) })
}

// handle consumes ids in a subscription that ends then.
func (b *bench) handle(ids ...string) {
	b.Helper()
	sub := b.subscriber()
	messages := b.messages(sub)
	for range ids {
		select {
		case msg := <-messages:
			msg.Ack()
		case <-time.After(patience):
			b.Fatal("no message came")
		}
	}
	b.drained()
	if err := sub.Close(); err != nil {
		b.Fatal(err)
	}
}

// spend lets the server give out n transaction ids.
func (b *bench) spend(n int) {
	b.Helper()
	for range n {
		b.exec(`SELECT pg_current_xact_id()`)
	}
}

// recorded is what the table of positions holds of the server.
func (b *bench) recorded() (recorded string) {
	b.Helper()
	if err := b.db.QueryRow(`SELECT COALESCE(spillway_server, '') FROM ` + b.offsetsTable()).Scan(&recorded); err != nil {
		b.Fatal(err)
	}
	return recorded
}

func batchOf(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%d", prefix, i))
	}
	return ids
}

// Feature P1: pg_upgrade makes another server whose transaction ids go on. The position is good, and the group goes on.
func TestServerUpgraded(t *testing.T) {
	b := onPostgres(t)
	b.publish("a", "b")
	b.handle("a", "b")
	server := b.recorded()
	if server == "" {
		t.Fatal("the server is not recorded")
	}
	b.exec(`UPDATE ` + b.offsetsTable() + ` SET spillway_server = '1'`)
	b.publish("c")
	b.handle("c")
	if got := b.recorded(); got != server {
		t.Errorf("recorded is %q, not %q", got, server)
	}
	// The last transactions before the upgrade overlapped: a person has to say that the position is good.
	b.exec(`UPDATE ` + b.table(b.topic) + ` SET transaction_id = '3', "offset" = "offset" + 1 WHERE uuid = 'b'`)
	b.exec(`UPDATE ` + b.offsetsTable() + ` SET spillway_server = '1', offset_acked = offset_acked - 1`)
	b.exec(`UPDATE ` + b.table(b.topic) + ` SET "offset" = "offset" - 1 WHERE uuid = 'c'`)
	b.refuses("overlapped")
	b.refuses("and again")
	b.exec(`UPDATE ` + b.offsetsTable() + ` SET spillway_server = NULL`)
	b.publish("d")
	b.handle("d")
	if got := b.recorded(); got != server {
		t.Errorf("recorded is %q, not %q", got, server)
	}
}

// Feature P1: the log says that the position moved if the server is another one, once, and never at a hand-over
// between instances: what waited for the lock of the position sees one that is newer than its snapshot.
func TestHandOversAreNoMoves(t *testing.T) {
	b := onPostgres(t)
	log := &testkit.Log{}
	moves := func() int { return len(log.Lines(watermill.InfoLogLevel, "valid on another server")) }
	logged := func(c *wmsql.SubscriberConfig) { c.Logger = log }
	out := make(chan *message.Message)
	var subs []*wmsql.Subscriber
	for range 3 {
		sub := b.subscriber(logged)
		messages := b.messages(sub)
		subs = append(subs, sub)
		go func() {
			for msg := range messages {
				out <- msg
			}
		}()
	}
	b.publish("0")
	for i := range 10 {
		msg := <-out
		b.until("the others wait for the position", func() bool {
			var waiting int
			err := b.db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0`, b.topic).Scan(&waiting)
			return err == nil && waiting == len(subs)-1
		})
		b.publish(fmt.Sprint(i + 1)) // newer than the snapshots of those that wait
		msg.Ack()
	}
	(<-out).Ack()
	b.drained()
	if moves() != 0 {
		t.Errorf("%d lines say that the position moved", moves())
	}
	for _, sub := range subs {
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}
	b.exec(`UPDATE ` + b.offsetsTable() + ` SET spillway_server = '1'`)
	b.publish("behind")
	b.comes(b.consume(logged), "behind")
	b.drained()
	if moves() != 1 {
		t.Errorf("%d lines say that the position moved to another server, want 1", moves())
	}
}

// A table of positions that watermill-sql made has no column for the server, and is consumed without one. Once there is
// one, watermill-sql's subscriber goes on with the table, and keeps what is recorded.
func TestServerColumn(t *testing.T) {
	b := onPostgres(t)
	b.exec(`ALTER TABLE ` + b.offsetsTable() + ` DROP COLUMN spillway_server`)
	b.publish("a")
	b.handle("a")
	if err := b.subscriber().SubscribeInitialize(b.topic); err != nil {
		t.Fatal(err)
	}
	b.publish("b")
	b.handle("b")
	server := b.recorded()
	b.publish("c")
	sub, messages := b.stock(patience)
	msg := <-messages
	msg.Ack()
	if msg.UUID != "c" {
		t.Errorf("watermill-sql's subscriber got %s", msg.UUID)
	}
	b.drained()
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	b.publish("d")
	b.handle("d")
	if got := b.recorded(); server == "" || got != server {
		t.Errorf("recorded is %q, and was %q", got, server)
	}
}

// Feature P1, no false alarm: the transactions of many publishers overlap, so that messages with higher numbers have
// lower transaction ids. Consumers of a server that stays the same come and go, and none is refused.
func TestServerStays(t *testing.T) {
	b := onPostgres(t)
	const publishers, each = 8, 40
	errs := make(chan error, publishers)
	for p := range publishers {
		go func() {
			errs <- func() error {
				for i := range each {
					tx, err := b.db.Begin()
					if err != nil {
						return err
					}
					// The id is given out before the number.
					if _, err := tx.Exec(`SELECT pg_current_xact_id(), pg_sleep(random() * 0.005)`); err != nil {
						return errors.Join(err, tx.Rollback())
					}
					if _, err := tx.Exec(`INSERT INTO `+b.table(b.topic)+` (uuid, payload, metadata, transaction_id) VALUES ($1, 'x', '{}', pg_current_xact_id())`,
						fmt.Sprintf("%d-%d", p, i)); err != nil {
						return errors.Join(err, tx.Rollback())
					}
					if err := tx.Commit(); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	seen := map[string]bool{}
	for len(seen) < publishers*each {
		log := &testkit.Log{}
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.Logger = log })
		messages := b.messages(sub)
		for range min(25, publishers*each-len(seen)) {
			select {
			case msg := <-messages:
				if !msg.Ack() {
					t.Error("not acked")
				}
				seen[msg.UUID] = true
			case <-time.After(patience):
				t.Fatalf("only %d messages came: %v", len(seen), log.Errors())
			}
		}
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		if log.Is(wmsql.ErrPositionAhead) {
			t.Fatal("a false alarm")
		}
	}
	for range publishers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A role that may not read the server's identifier consumes as before, and a refusal stays all the same.
func TestServerUnknown(t *testing.T) {
	address, err := url.Parse(postgrestest.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	admin := postgrestest.Open(t, address.String())
	do := func(db *sql.DB, statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := db.Exec(statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	name := "spillway_test_" + strings.ToLower(rand.Text()[:12])
	do(admin, `CREATE ROLE `+name+` LOGIN PASSWORD 'unknown'`, `CREATE DATABASE `+name+` OWNER `+name)
	defer do(admin, `DROP DATABASE `+name+` WITH (FORCE)`, `DROP ROLE `+name)
	address.Path, address.RawQuery = "/"+name, "sslmode=disable"
	own, err := sql.Open("pgx", address.String())
	if err != nil {
		t.Fatal(err)
	}
	do(own, `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`)
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(name, "unknown")
	t.Run("consumes", func(t *testing.T) { // and closes its pools before the database goes
		b := newBench(t, func(t testing.TB) *sql.DB { return postgrestest.Open(t, address.String()) })
		b.publish("a", "b")
		b.handle("a", "b")
		if got := b.recorded(); got != "" {
			t.Errorf("recorded is %q", got)
		}
		b.exec(`UPDATE ` + b.offsetsTable() + ` SET last_processed_transaction_id = (pg_current_xact_id()::text::bigint + 50)::text::xid8`)
		b.refuses("ahead")
		b.spend(100)
		b.refuses("the ids have passed the position")
		b.comes(b.consume(func(c *wmsql.SubscriberConfig) { c.RestartIfAhead = true }), "a", "b")
	})
}
