package wmsql_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

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
	query := `SELECT COALESCE(spillway_server, '') FROM ` + b.offsetsTable()
	testkit.NoError(b, b.db.QueryRow(query).Scan(&recorded))
	return recorded
}

// setPosition sets columns of the table of positions.
func (b *bench) setPosition(to string) {
	b.Helper()
	b.exec(`UPDATE ` + b.offsetsTable() + ` SET ` + to)
}

// setAhead sets the position to a transaction that is yet to begin.
func (b *bench) setAhead(by int) {
	b.Helper()
	b.setPosition(fmt.Sprintf(`last_processed_transaction_id = (pg_current_xact_id()::text::bigint + %d)::text::xid8`,
		by))
}

// Feature P1: pg_upgrade makes another server whose transaction ids go on. The position is good, and the group goes on.
func TestServerUpgraded(t *testing.T) {
	b := on(t, databases.Postgres)
	b.handled([]string{"a", "b"}, false)
	server := b.recorded()
	testkit.Require(t, server != "", "the server is not recorded")
	b.setPosition(`spillway_server = '1'`)
	b.publish("c")
	b.handle("c")
	testkit.Equal(t, "recorded is", b.recorded(), server)
	// The last transactions before the upgrade overlapped: a person has to say that the position is good.
	b.exec(`UPDATE ` + b.table(b.topic) + ` SET transaction_id = '3', "offset" = "offset" + 1 WHERE uuid = 'b'`)
	b.setPosition(`spillway_server = '1', offset_acked = offset_acked - 1`)
	b.exec(`UPDATE ` + b.table(b.topic) + ` SET "offset" = "offset" - 1 WHERE uuid = 'c'`)
	b.refuses("overlapped")
	b.refuses("and again")
	b.setPosition(`spillway_server = NULL`)
	b.publish("d")
	b.handle("d")
	testkit.Equal(t, "recorded is", b.recorded(), server)
}

// Feature P1: the log says once that the server is another one, and never at a hand-over between instances.
func TestHandOversAreNoMoves(t *testing.T) {
	b := on(t, databases.Postgres)
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
			const waits = `SELECT count(*) FROM pg_stat_activity
				WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0`
			return b.ask(waits, b.topic) == len(subs)-1
		})
		b.publish(fmt.Sprint(i + 1)) // newer than the snapshots of those that wait
		msg.Ack()
	}
	(<-out).Ack()
	b.drained()
	testkit.Equal(t, "lines of a move", moves(), 0)
	for _, sub := range subs {
		testkit.Is(t, sub.Close(), nil)
	}
	b.setPosition(`spillway_server = '1'`)
	b.publish("behind")
	b.comes(b.consume(logged), "behind")
	b.drained()
	testkit.Equal(t, "lines of a move", moves(), 1)
}

// watermill-sql's table of positions has no column for the server, and is consumed. Where there is one, it is kept.
func TestServerColumn(t *testing.T) {
	b := on(t, databases.Postgres)
	b.exec(`ALTER TABLE ` + b.offsetsTable() + ` DROP COLUMN spillway_server`)
	b.publish("a")
	b.handle("a")
	testkit.NoError(t, b.subscriber().SubscribeInitialize(b.topic))
	b.publish("b")
	b.handle("b")
	server := b.recorded()
	b.publish("c")
	sub, messages := b.stock(patience)
	b.receive(messages, "c").Ack()
	b.drained()
	testkit.Is(t, sub.Close(), nil)
	b.publish("d")
	b.handle("d")
	testkit.Check(t, server != "" && b.recorded() == server, "recorded was %q", server)
}

// Feature P1: overlapping transactions of many publishers are no false alarm.
func TestServerStays(t *testing.T) {
	b := on(t, databases.Postgres)
	const publishers, each = 8, 40
	errs := make(chan error, publishers)
	for p := range publishers {
		go func() {
			var err error
			for i := 0; i < each && err == nil; i++ {
				var tx *sql.Tx
				if tx, err = b.db.Begin(); err != nil {
					break
				}
				// The id is given out before the number.
				_, first := tx.Exec(`SELECT pg_current_xact_id(), pg_sleep(random() * 0.005)`)
				_, then := tx.Exec(`INSERT INTO `+b.table(b.topic)+` (uuid, payload, metadata, transaction_id)
					VALUES ($1, 'x', '{}', pg_current_xact_id())`, fmt.Sprintf("%d-%d", p, i))
				err = errors.Join(first, then, tx.Commit())
			}
			errs <- err
		}()
	}
	seen := map[string]bool{}
	for len(seen) < publishers*each {
		log := &testkit.Log{}
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.Logger = log })
		messages := b.messages(sub)
		for range min(25, publishers*each-len(seen)) {
			msg := testkit.Receive(t, fmt.Sprintf("message %d", len(seen)), messages)
			testkit.Check(t, msg.Ack(), "not acked")
			seen[msg.UUID] = true
		}
		testkit.NoError(t, sub.Close())
		testkit.Require(t, !log.Is(wmsql.ErrPositionAhead), "a false alarm")
	}
	for range publishers {
		testkit.Is(t, <-errs, nil)
	}
}

// A role that may not read the server's identifier consumes as before, and a refusal stays all the same.
func TestServerUnknown(t *testing.T) {
	address := testkit.Must(url.Parse(databases.Postgres.Create(t)))
	admin := databases.Postgres.Open(t, address.String())
	do := func(db *sql.DB, statements ...string) {
		t.Helper()
		for _, statement := range statements {
			testkit.Must(db.Exec(statement))
		}
	}
	name := "spillway_test_" + strings.ToLower(rand.Text()[:12])
	do(admin, `CREATE ROLE `+name+` LOGIN PASSWORD 'unknown'`, `CREATE DATABASE `+name+` OWNER `+name)
	defer do(admin, `DROP DATABASE `+name+` WITH (FORCE)`, `DROP ROLE `+name)
	address.Path, address.RawQuery = "/"+name, "sslmode=disable"
	own := databases.Postgres.Open(t, address.String())
	do(own, `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`)
	testkit.NoError(t, own.Close())
	address.User = url.UserPassword(name, "unknown")
	t.Run("consumes", func(t *testing.T) { // and closes its pools before the database goes
		b := newBench(t, databases.Postgres, address.String())
		b.handled([]string{"a", "b"}, false)
		testkit.Equal(t, "recorded is", b.recorded(), "")
		b.setAhead(50)
		b.refuses("ahead")
		b.spend(100)
		b.refuses("the ids have passed the position")
		b.comes(b.consume(restart), "a", "b")
	})
}
