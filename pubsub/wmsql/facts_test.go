package wmsql_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// The facts about watermill-sql that this package answers to. When one of these tests fails, watermill-sql repaired it:
// say so in the README.

// Fact, decision 8: in its REPEATABLE READ a key that was committed meanwhile is an error, for every message of a batch
// of 100. TestKeyCommittedMeanwhile shows that ours finds the key.
func TestFactWatermillCannotSeeKeys(t *testing.T) {
	b := on(t, databases.Postgres) // in MySQL it is SERIALIZABLE
	b.exec(`CREATE TABLE seen (id text PRIMARY KEY)`)
	b.publish("a")
	_, messages := b.stock(time.Minute)
	msg := <-messages
	b.exec(`INSERT INTO seen VALUES ('a')`)
	testkit.Says(t, do(t, msg, `INSERT INTO seen VALUES ('a') ON CONFLICT DO NOTHING`), "40001")
}

// read tells how many blocks PostgreSQL touches for a query.
func (b *bench) read(query wsql.Query) int {
	b.Helper()
	rows := testkit.Must(b.db.Query(`EXPLAIN (ANALYZE, BUFFERS) `+query.Query, query.Args...))
	defer rows.Close()
	most := 0
	for rows.Next() {
		var line string
		testkit.NoError(b, rows.Scan(&line))
		if !strings.Contains(line, "Buffers: shared") {
			continue
		}
		blocks := 0
		for _, n := range regexp.MustCompile(`(?:hit|read)=(\d+)`).FindAllStringSubmatch(line, -1) {
			count, _ := strconv.Atoi(n[1])
			blocks += count
		}
		most = max(most, blocks)
	}
	return most
}

// Fact: watermill-sql reads all that waits to find the next message; ours reads the same few blocks at any backlog.
func TestFactWatermillReadsTheBacklog(t *testing.T) {
	b := on(t, databases.Postgres) // in MySQL an index of one column answers
	stock := wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 1}.SelectQuery(b.topic, "",
		wsql.DefaultPostgreSQLOffsetsAdapter{})
	sub := b.subscriber()
	b.messages(sub) // registers the group
	testkit.NoError(t, sub.Close())
	touched := map[string][]int{}
	for range 2 {
		b.exec(`INSERT INTO ` + b.table(b.topic) + ` (uuid, payload, metadata, transaction_id)
SELECT n::text, 'x', '{}', (3 + n)::text::xid8 FROM generate_series(1, 10000) AS n`)
		b.exec(`ANALYZE ` + b.table(b.topic))
		touched["stock"] = append(touched["stock"], b.read(stock))
		touched["ours"] = append(touched["ours"], b.read(wmsql.NextQuery(sub, b.topic, 1)))
	}
	const few = 12
	// How many watermill-sql touches, and how they grow, depends on the plan of the day.
	testkit.Check(t, slices.Min(touched["stock"]) > few && slices.Max(touched["ours"]) <= few, "%v blocks are touched",
		touched)
}

// Fact: watermill-sql's own subscriber for MySQL passes over a row that becomes visible after a row with a higher
// number, for good. So rows of concurrent publishers come: the server gives a number out before it writes the row. When
// this test fails, the subscriber waits for such rows: say so in doc.go, and compare entry.go with what it does instead.
func TestFactStockLosesRows(t *testing.T) {
	b := on(t, databases.MariaDB)
	_, messages := b.stock(time.Minute)
	for _, row := range []struct {
		number int
		id     string
		comes  bool
	}{{2, "a", true}, {1, "late", false}, {3, "b", true}} {
		b.exec("INSERT INTO "+b.table(b.topic)+" (`offset`, uuid, payload, metadata) VALUES (?, ?, '{}', '{}')",
			row.number, row.id)
		if !row.comes {
			continue
		}
		b.receive(messages, row.id).Ack()
	}
}
