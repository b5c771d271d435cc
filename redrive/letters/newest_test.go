package letters_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: the newest first is the oldest first turned around, with any filter and page, over several windows.
func TestStore_newestFirst(t *testing.T) { onEach(t, testStore_newestFirst) }

func testStore_newestFirst(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	const n = 24
	at := time.Now().UTC().Truncate(time.Second)
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = letter(fmt.Sprint("id-", i), fmt.Sprintf(`{"order":%d}`, i), func(l *poison.Letter) {
			l.Origin.Handler = []string{"billing", "shipping", "mailing"}[i%3]
			l.Failure.LastFailedAt, l.Failure.Description = at.Add(time.Duration(i-n)*time.Minute), fmt.Sprint("customer ", i)
			l.Original.Metadata = message.Metadata{"tenant": []string{"blue", "red"}[i%2]}
		})
	}
	publish(t, store, "orders.dlq", messages...)
	first := list(t, store, letters.Filter{Limit: 1})[0].Seq
	for _, behind := range []int64{first + 7, first + 15} { // its bodies stay where they are
		testkit.Must(db.Exec(`UPDATE spillway_dead_letters SET moved_from = CASE WHEN moved_from > 0 THEN moved_from ELSE seq END, seq = seq + 70000 WHERE seq > ` + fmt.Sprint(behind)))
	}
	testkit.Must(fixture.Lease(ctx, store, letters.Filter{}, []int64{first, first + 3, first + 5}, time.Hour))
	all := heads(t, store, letters.Filter{}, 100)
	testkit.Require(t, len(all) == n && all[n-1]-all[0] >= 140_000, "the letters are %v", all)
	for what, f := range map[string]letters.Filter{
		"all": {}, "up to a letter": {MaxSeq: all[17]}, "of handlers": {Handlers: []string{"billing", "mailing"}}, "of one handler": {Handlers: []string{"shipping"}, MaxSeq: all[20]},
		"of ids": {IDs: []string{"id-3", "id-11", "id-20", "id-23"}}, "leased": {Leased: true}, "by a text": {Description: "customer 1"},
		"by payload": {Payload: `"order":2`}, "by metadata": {Metadata: map[string]string{"tenant": "red"}}, "since": {Since: at.Add(-9 * time.Minute)},
		"of another state": {Statuses: []letters.Status{letters.StatusDiscarded}}, "of no cause": {Handlers: []string{"none"}}, "before the first": {MaxSeq: all[0] - 1, IDs: []string{"id-0"}},
	} {
		oldest := heads(t, store, f, 100)
		slices.Reverse(oldest)
		f.NewestFirst = true
		for _, size := range []int{1, 5, 100} {
			newest := heads(t, store, f, size)
			testkit.Check(t, slices.Equal(newest, oldest), "%s, %d a page: %v, want %v", what, size, newest, oldest)
		}
		f.Limit = 100
		whole, err := store.List(ctx, f)
		testkit.Check(t, err == nil &&
			slices.EqualFunc(whole, oldest, func(l letters.Letter, seq int64) bool { return l.Seq == seq && len(l.Original.Payload) > 0 }),
			"%s: %d whole letters, want %d: %v", what, len(whole), len(oldest), err)
	}
}

// heads are the Seqs of all letters that a filter chooses, read in pages.
func heads(t *testing.T, store *letters.Store, f letters.Filter, size int) (seqs []int64) {
	t.Helper()
	for f.Limit = size; ; f.After = seqs[len(seqs)-1] {
		page := testkit.Must(store.Heads(t.Context(), f))
		if len(page) == 0 || len(seqs) > 1000 {
			return seqs
		}
		for _, h := range page {
			seqs = append(seqs, h.Seq)
		}
	}
}

// Feature V9: on PostgreSQL a page costs what its own service has, also after a plan was kept at the fifth time.
func TestPagesOfSmallService(t *testing.T) {
	db := databases.Postgres.New(t)
	db.SetMaxOpenConns(2)
	const others, own = 20_000, 500
	big, err := letters.NewStore(t.Context(), db, letters.Config{Service: "big"})
	testkit.NoError(t, err)
	publish(t, big, "orders.dlq", letter("1", "{}"))
	columns := textOf(t, db, `SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = 'spillway_dead_letters' AND column_name NOT IN ('seq', 'identity')`)
	_, err = db.Exec(`INSERT INTO spillway_dead_letters (identity, ` + columns + `) SELECT decode(md5(n::text), 'hex'), ` + columns +
		` FROM spillway_dead_letters, generate_series(1, ` + fmt.Sprint(others) + `) n`)
	testkit.NoError(t, err)
	small := testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "small"}))
	messages := make([]*message.Message, own)
	for i := range messages {
		messages[i] = letter(fmt.Sprint("own-", i), "{}")
	}
	publish(t, small, "orders.dlq", messages...)
	testkit.Must(db.Exec(`ANALYZE`))
	db.SetMaxOpenConns(1) // so that each page meets what the ones before it have prepared
	for page := range 12 {
		before := rowsRead(t, db)
		testkit.Equal(t, "heads", len(testkit.Must(small.Heads(t.Context(), letters.Filter{After: 5, Limit: 10}))), 10)
		n := rowsRead(t, db) - before
		testkit.Check(t, n <= 5*own, "page %d read %d rows, and the service has %d letters", page+1, n, own)
	}
}

// rowsRead counts what the server read of the letters, for all connections of this pool of one.
func rowsRead(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	testkit.Must(db.Exec(`SELECT pg_stat_force_next_flush()`))
	err := db.QueryRow(`SELECT (SELECT COALESCE(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname = 'spillway_dead_letters')
	+ (SELECT COALESCE(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE schemaname = current_schema() AND relname = 'spillway_dead_letters')`).Scan(&n)
	testkit.NoError(t, err)
	return n
}
