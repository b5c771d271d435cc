package delayed

import (
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// Due order, and never early by the database's clock, whatever the delays are.
func TestDueOrder(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
		random := testkit.Random(t)
		const n = 300
		for i := range n {
			put(t, s, "topic "+strconv.Itoa(random.IntN(2)), newMessage(numberedID(i)), time.Duration(random.IntN(500))*time.Millisecond)
		}
		due := make(map[string]int64)
		order := []string{}
		testkit.NoError(t, s.Rows(t.Context(), func() {}, func(rows *sql.Rows) error {
			var id []byte
			var at int64
			err := rows.Scan(&id, &at)
			due[string(id)] = at
			order = append(order, string(id))
			return err
		}, `SELECT id, due_at FROM spillway_delayed ORDER BY due_at, seq`))
		out := &outbox{before: func(_ string, messages []*message.Message) error {
			var now int64
			if err := s.db.DB().QueryRow(s.db.Statement(`SELECT now_us()`)).Scan(&now); err != nil {
				return err
			}
			for _, msg := range messages {
				testkit.Check(t, now >= due[msg.UUID], "%s is early by %dµs", msg.UUID, due[msg.UUID]-now)
			}
			return nil
		}}
		start(t, s, out, RelayConfig{})
		eventually(t, "all are published", func() bool { return len(out.all()) == n })
		testkit.Check(t, slices.Equal(out.ids(), order), "they are not published in the order in which they are due")
	})
}

// shopService is how the service of tests stands in its column.
var shopService = map[string]string{"sqlite": `x'73686f70'`, "postgres": `'shop'`, "mariadb": `'shop'`}

// Many rows wait: what a take and a look cost does not depend on them. Those of a topic that refuses are passed over in
// the index.
func TestPlan(t *testing.T) {
	digits := "SELECT 0 AS n" + strings.Join(strings.Split(" 1 2 3 4 5 6 7 8 9", " "), " UNION ALL SELECT ")
	series := `WITH d AS (` + digits + `), series AS (
	SELECT a.n + 10 * b.n + 100 * c.n + 1000 * e.n + 10000 * f.n + 1 AS n FROM d a, d b, d c, d e, d f)`
	explain := map[string]string{"sqlite": `EXPLAIN QUERY PLAN `, "postgres": `EXPLAIN (ANALYZE, BUFFERS) `, "mariadb": `EXPLAIN `}
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s, series := openStore(t, d, address), series
		// The first fifty are due.
		at := s.db.Statement(`now_us() + CASE WHEN n <= 50 THEN -n ELSE n + 1000 END * 1000000.0`)
		if d.Name != "postgres" { // where a tenth will do
			series = strings.Replace(series, "d f)", "(SELECT 0 AS n) f)", 1)
		}
		testkit.NoError(t, testkit.Err(s.db.DB().Exec(`INSERT INTO spillway_delayed
			(service, topic, size, due_at, ready_at, id, metadata, payload) `+series+
			` SELECT `+shopService[d.Name]+`, 'topic', 10, `+at+`, `+at+`, 'id', '\x01', 'payload' FROM series`)))
		analyze := map[string]string{"sqlite": `ANALYZE`, "postgres": `VACUUM ANALYZE`, "mariadb": `ANALYZE TABLE spillway_delayed`}
		testkit.Must(s.db.DB().Exec(analyze[d.Name]))
		without, refuses := notOf([]string{"topic"})
		queries := map[string]string{"next": nextText(s, ""), "choose": chooseText(s, ""), "next beside refused": nextText(s, without),
			"choose beside refused": chooseText(s, without)}
		for name, query := range queries {
			plan, args := "", []any{[]byte(s.service), 200}
			switch name {
			case "next beside refused":
				args = append(args, refuses...)
			case "choose beside refused":
				if d.Name != "postgres" { // the others lock in the index what they look at
					continue
				}
				args = slices.Concat(args[:1], refuses, args[1:])
			}
			err := s.Rows(t.Context(), func() {}, func(rows *sql.Rows) error {
				columns, err := rows.Columns()
				line := make([]sql.NullString, len(columns))
				into := make([]any, len(line))
				for i := range line {
					into[i] = &line[i]
				}
				err = errors.Join(err, rows.Scan(into...))
				for i := range line {
					plan += columns[i] + ": " + line[i].String + " "
				}
				plan += "\n"
				return err
			}, explain[d.Name]+query, args...)
			testkit.NoError(t, err)
			if strings.HasSuffix(name, "beside refused") { // the index tells topics apart
				only := map[string]string{"sqlite": "COVERING INDEX", "postgres": "Index Only Scan", "mariadb": "; Using index "}[d.Name]
				testkit.Check(t, strings.Contains(plan, only), "%s:\n%s", name, plan)
				continue
			}
			if !strings.Contains(plan, "spillway_delayed_ready") ||
				slices.ContainsFunc([]string{"Seq Scan", "Filter", "Sort", "filesort", "B-TREE", "type: ALL"}, func(s string) bool { return strings.Contains(plan, s) }) {
				t.Errorf("%s:\n%s", name, plan)
			}
		}
		b, err := s.take(t.Context(), 200, time.Minute, nil)
		testkit.Check(t, err == nil && len(b.rows) == 50 && !b.more, "%v %v %v", len(b.rows), b.more, err)
	})
}
