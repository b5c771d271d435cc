package letters_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// Feature V9: what a page of a service costs on PostgreSQL depends on its own letters, however often it was asked for
// on a connection. After five times a plan for any service would read the letters of all.
func TestPagesOfSmallService(t *testing.T) {
	db := databases.Postgres.New(t)
	db.SetMaxOpenConns(2)
	const others, own = 20_000, 500
	big, err := letters.NewStore(t.Context(), db, settings.Shared{Service: "big"})
	testkit.NoError(t, err)
	publish(t, big, "orders.dlq", letter("1", "{}"))
	columns := textOf(t, db, `SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = 'spillway_dead_letters' AND column_name NOT IN ('seq', 'identity')`)
	_, err = db.Exec(`INSERT INTO spillway_dead_letters (identity, ` + columns + `) SELECT decode(md5(n::text), 'hex'), ` + columns +
		` FROM spillway_dead_letters, generate_series(1, ` + fmt.Sprint(others) + `) n`)
	testkit.NoError(t, err)
	small := testkit.Must(letters.NewStore(t.Context(), db, settings.Shared{Service: "small"}))
	messages := make([]*message.Message, own)
	for i := range messages {
		messages[i] = letter(fmt.Sprint("own-", i), "{}")
	}
	publish(t, small, "orders.dlq", messages...)
	testkit.Must(db.Exec(`ANALYZE`))
	db.SetMaxOpenConns(1) // so that each page meets what the ones before it have prepared
	for page := range 12 {
		before := rowsRead(t, db)
		heads, err := small.Heads(t.Context(), letters.Filter{After: 5, Limit: 10})
		if err != nil || len(heads) != 10 {
			t.Fatal(len(heads), err)
		}
		if n := rowsRead(t, db) - before; n > 5*own {
			t.Errorf("page %d read %d rows, and the service has %d letters", page+1, n, own)
		}
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

func textOf(t *testing.T, db *sql.DB, question string) (text string) {
	t.Helper()
	testkit.NoError(t, db.QueryRow(question).Scan(&text))
	return text
}
