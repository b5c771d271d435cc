package delayed

import (
	"database/sql"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// Feature R8, promise P4: what waits for a topic that refuses, in whatever way, is passed over by all relays, and not
// written again and again. Messages of other topics that come after it are published meanwhile. When the topic takes
// messages again the relays share the work: all are published, once.
func TestRefusedIsPassedOver(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := newStore(t, d, address)
		const n, relays, batch = 3000, 3, 20
		fill(t, s, "bad", n)
		fill(t, s, "worse", 100) // behind it
		fill(t, s, "worst", 100)
		var down atomic.Bool
		down.Store(true)
		var bad, worse, worst atomic.Int64 // tries
		out := &outbox{before: func(topic string, _ []*message.Message) error {
			switch {
			case !down.Load() || topic == "good":
				return nil
			case topic == "worse":
				worse.Add(1)
				panic("\x00")
			case topic == "worst":
				worst.Add(1)
				runtime.Goexit()
			}
			bad.Add(1)
			return errDown
		}}
		begun := time.Now()
		for range relays {
			start(t, newStore(t, d, address), out, RelayConfig{Batch: batch, Poll: 20 * time.Millisecond, Lease: time.Minute})
		}
		eventually(t, "all topics were tried more often than it takes to believe that they are down", func() bool {
			return min(bad.Load(), worse.Load(), worst.Load()) > relays*(maxRefusals+1)
		})
		for i := range 20 {
			put(t, s, "good", newMessage(fmt.Sprint("good-", i)), time.Duration(i)*5*time.Millisecond)
		}
		eventually(t, "the good ones are published", func() bool { return len(out.all()) == 20 })
		var written int
		testkit.NoError(t, s.db.DB().QueryRow(`SELECT COUNT(*) FROM spillway_delayed WHERE ready_at <> due_at`).Scan(&written))
		testkit.Check(t, written <= 10*relays*batch, "%d of %d rows were written again", written, n)
		tries, most := max(bad.Load(), worse.Load(), worst.Load()), relays*(12+2*int64(time.Since(begun)/maxTopicWait))
		testkit.Check(t, tries <= most, "%d tries in vain of a topic, at most %d", tries, most)
		down.Store(false)
		eventually(t, "all are published", func() bool { return kept(t, s) == 0 })
		different := map[string]bool{}
		for _, p := range out.all() {
			different[p.topic+" "+p.msg.UUID] = true
		}
		testkit.Equal(t, "messages are published", len(out.all()), n+100+100+20)
		testkit.Equal(t, "different ones", len(different), n+100+100+20)
	})
}

// A topic that refuses is left alone for longer and longer, and what is remembered of topics is bounded.
func TestTopics(t *testing.T) {
	all, now, last := topics{}, time.Now(), time.Duration(0)
	for i := range 42 {
		all.refused("a", 1, now)
		wait := all.wait("a", now)
		testkit.Check(t, wait <= maxTopicWait && (i < 2 && wait == 0 || i >= 2 && (wait > last || i > 9) &&
			wait >= firstTopicWait/2),
			"after %d refusals: %s", i+1, wait)
		last = wait
	}
	all.took("a")
	testkit.Check(t, len(all) == 0 && all.atOnce("a", 10) == 10, "what it took is not believed")
	for i := range 3 * maxTopics {
		all.refused(fmt.Sprint(i), 2, now.Add(time.Duration(i)*time.Millisecond))
	}
	testkit.Check(t, len(all) <= maxTopics && len(all) >= 50, "%d are remembered", len(all))
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
	dear, cheap := s.buffers(t, front), s.buffers(t, here)
	testkit.Check(t, dear >= 100 && cheap*10 <= dear,
		"a look reads %d pages from the start, %d from behind the dead rows", dear, cheap)
}

var pages = regexp.MustCompile(`Buffers: shared (?:hit=(\d+))? ?(?:read=(\d+))?`)

// buffers is how many pages a look reads.
func (s *Store) buffers(t *testing.T, from place) (most int) {
	t.Helper()
	args := append(append([]any{[]byte(s.service)}, s.dialect.after(from)...), time.Second.Microseconds())
	testkit.NoError(t, s.rows(t.Context(), func() {}, func(rows *sql.Rows) error {
		var line string
		err := rows.Scan(&line)
		if found := pages.FindStringSubmatch(line); found != nil {
			hit, _ := strconv.Atoi(found[1]) // an empty one is none
			read, _ := strconv.Atoi(found[2])
			most = max(most, hit+read)
		}
		return err
	}, `EXPLAIN (ANALYZE, BUFFERS) `+s.statements.next, args...))
	return most
}
