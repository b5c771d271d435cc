package delayed

import (
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// Feature R8, promise P4: what waits for a topic that refuses is passed over by all relays, and not written again and
// again. Messages of other topics that come after it are published meanwhile; and when the topic takes messages again,
// all of them are, once.
func TestRefusedIsPassedOver(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := newStore(t, d, address)
		const n, relays, batch = 3000, 3, 20
		fill(t, s, "bad", n)
		fill(t, s, "worse", 100) // behind it
		var down atomic.Bool
		down.Store(true)
		var tries [2]atomic.Int64
		out := &outbox{before: func(topic string, _ []*message.Message) error {
			for i, name := range []string{"bad", "worse"} {
				if topic == name && down.Load() {
					tries[i].Add(1)
					return errDown
				}
			}
			return nil
		}}
		for range relays {
			start(t, newStore(t, d, address), out, RelayConfig{Batch: batch, Poll: 20 * time.Millisecond, Lease: time.Minute})
		}
		eventually(t, "both topics were tried more often than it takes to believe that they are down", func() bool {
			return tries[0].Load() > relays*(maxRefusals+1) && tries[1].Load() > relays*(maxRefusals+1)
		})
		for i := range 20 {
			put(t, s, "good", newMessage(fmt.Sprint("good-", i)), time.Duration(i)*5*time.Millisecond)
		}
		eventually(t, "the good ones are published", func() bool { return len(out.all()) == 20 })
		var written int
		testkit.NoError(t, s.db.DB().QueryRow(`SELECT COUNT(*) FROM spillway_delayed WHERE ready_at <> due_at`).Scan(&written))
		testkit.Check(t, written <= 10*relays*batch, "%d of %d rows were written again", written, n)
		down.Store(false)
		eventually(t, "all are published", func() bool { return kept(t, s) == 0 })
		testkit.Equal(t, "messages are published", len(out.all()), n+100+20)
	})
}

// A look from the start that was dear is not repeated for a time that its cost bounds, and a cheap one always is.
func TestPass(t *testing.T) {
	var p pass
	now := time.Now()
	reached := place{ready: 5}
	from, full := p.begin(now)
	testkit.Check(t, from == front && full, "the first look is not from the start")
	p.looked(now, dear-1, reached)
	from, full = p.begin(now)
	testkit.Check(t, from == front && full, "after a cheap one the next is not from the start")
	p.looked(now, 50*time.Millisecond, reached)
	from, full = p.begin(now.Add(5*time.Second - 1))
	testkit.Check(t, from == reached && !full, "a dear one is repeated too soon")
	from, full = p.begin(now.Add(5 * time.Second))
	testkit.Check(t, from == front && full, "a dear one is not repeated")
	p.from, p.first = reached, map[string]place{"a": {}}
	p.recovered(topics{"a": {refusals: maxRefusals}}, now)
	testkit.Check(t, p.from == reached && len(p.first) == 1, "what a topic that refuses holds is not passed over")
	due, in := p.probes(topics{"a": {refusals: maxRefusals, until: now.Add(time.Second)}}, now)
	testkit.Check(t, len(due) == 0 && in == time.Second, "%v %v", due, in)
	due, in = p.probes(topics{"a": {refusals: maxRefusals}}, now)
	testkit.Check(t, len(due) == 1 && in == 0, "%v %v", due, in)
	p.recovered(topics{}, now)
	testkit.Check(t, p.from == (place{}) && len(p.first) == 0,
		"what a topic holds that takes messages again is passed over")
}

// With an old snapshot open, PostgreSQL keeps the index entries of deleted rows. A look that begins behind them reads
// none of them, nor those of leases that lie in the future.
func TestDeadEntries(t *testing.T) {
	d := databases.Postgres
	s := newStore(t, d, d.Create(t))
	old := testkit.Must(s.db.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
	defer func() { _ = old.Rollback() }()
	testkit.Must(old.Exec(`SELECT COUNT(*) FROM spillway_delayed`))
	const n = 20_000
	fill(t, s, "orders", n)
	for _, statement := range []string{`UPDATE spillway_delayed SET ready_at = ready_at + 10000000`, `DELETE FROM spillway_delayed`} {
		testkit.Must(s.db.DB().Exec(statement))
	}
	here := testkit.Must(s.here(t.Context()))
	if dear, cheap := s.buffers(t, front), s.buffers(t, here); dear < 100 || cheap*10 > dear {
		t.Errorf("a look reads %d pages from the start, and %d from behind the dead rows", dear, cheap)
	}
}

var pages = regexp.MustCompile(`Buffers: shared (?:hit=(\d+))? ?(?:read=(\d+))?`)

// buffers is how many pages a look reads.
func (s *Store) buffers(t *testing.T, from place) (most int) {
	t.Helper()
	args := append(append([]any{[]byte(s.service)}, s.dialect.after(from)...), time.Second.Microseconds())
	err := s.rows(t.Context(), func() {}, func(rows *sql.Rows) error {
		var line string
		err := rows.Scan(&line)
		if found := pages.FindStringSubmatch(line); found != nil {
			hit, _ := strconv.Atoi(found[1]) // an empty one is none
			read, _ := strconv.Atoi(found[2])
			most = max(most, hit+read)
		}
		return err
	}, `EXPLAIN (ANALYZE, BUFFERS) `+s.statements.next, args...)
	testkit.NoError(t, err)
	return most
}
