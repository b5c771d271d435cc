package letters_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: a person reads letters as text with the database's own client, without what deceives a terminal.
func TestStore_view(t *testing.T) { onEach(t, testStore_view) }

func testStore_view(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store := storeOn(t, db)
	publish(t, store, "orders.dlq",
		letter("1", "secret", func(l *poison.Letter) { l.Failure.Description = "kein Konto für 日本 🙂 \\ 'x'" }),
		letter("2", "secret", func(l *poison.Letter) {
			l.Failure.Description, l.Origin.Handler = "red\x1b[31m and \b\b over\rline", strings.Repeat("é", 300)
		}),
		letter("\xff\x00", "secret", func(l *poison.Letter) { l.Origin.Topic = "or\xffders" }))
	act := letters.Act{By: "ann", Reason: "of no use", RedriveID: "drain-1"}
	testkit.NoError(t, fixture.Mark(t.Context(), store, take(t, store, letters.Filter{}, 1)[0], letters.StatusDiscarded, act))
	read := func(db *sql.DB, column, where string) (value sql.NullString) {
		t.Helper()
		err := db.QueryRow(`SELECT ` + column + ` FROM spillway_letters_text WHERE ` + where).Scan(&value)
		testkit.Check(t, err == nil, "%s: %v", column, err)
		return value
	}
	got := read(db, "leased_by", "seq = 2")
	testkit.Check(t, !got.Valid, "a letter without a lease has the holder %s", got.String)
	for column, want := range map[string]string{
		"service": "shop", "message_id": "1", "status": "discarded", "dead_letter_topic": "orders.dlq", "topic": "orders", "handler": "billing",
		"class": "permanent", "reason": "no_such_customer", "type": "*shop.Error", "stack_hash": "abc", "description": "kein Konto für 日本 🙂 \\ 'x'",
		"seen": "1", "marked_by": "ann", "marked_why": "of no use", "redrive_id": "drain-1",
	} {
		got := read(db, column, "seq = 1").String
		testkit.Check(t, got == want, "%s is %q, want %q", column, got, want)
	}
	failed := read(db, "first_failed_at", "seq = 1").String
	testkit.Check(t, strings.HasPrefix(failed, "2026-03-01") && strings.Contains(failed, "12:00:00.123"), "failed at %s", failed)
	at := read(db, "marked_at", "seq = 2")
	testkit.Check(t, !at.Valid, "a letter that was never marked was so at %s", at.String)
	testkit.Equal(t, "", read(db, "description", "seq = 2").String, "red?[31m and ?? over?line")
	testkit.Equal(t, "a long name", read(db, "handler", "seq = 2").String, strings.Repeat("é", 255))
	if on.Name != sqliteFile.Name { // it shows the bytes as they are
		for column, want := range map[string][]string{"message_id": {`\377\000`, "FF00"}, "topic": {`or\377ders`, "6F72FF64657273"}} {
			got := read(db, column, "seq = 3").String
			testkit.Check(t, got == want[0] || got == want[1], "%s is %q", column, got)
		}
	}
	rows := testkit.Must(db.Query(`SELECT * FROM spillway_letters_text`))
	columns := strings.Join(testkit.Must(rows.Columns()), " ")
	testkit.Check(t, !strings.Contains(columns, "payload") && !strings.Contains(columns, "metadata") &&
		!strings.Contains(columns, "token"), "%s", columns)
	testkit.NoError(t, rows.Close())
}

// Feature V9: a role that may read the view, and nothing else, sees the letters.
func TestStore_viewOfReader(t *testing.T) {
	db := databases.Postgres.New(t)
	db.SetMaxOpenConns(1)
	publish(t, storeOn(t, db), "orders.dlq", letter("1", "a"))
	schema := textOf(t, db, `SELECT current_schema()`)
	role := "reader_" + schema
	mustExec(t, db, `CREATE ROLE `+role, `GRANT USAGE ON SCHEMA `+schema+` TO `+role, `GRANT SELECT ON spillway_letters_text TO `+role, `SET ROLE `+role)
	got := textOf(t, db, `SELECT description FROM spillway_letters_text WHERE message_id = '1'`)
	testkit.Check(t, got == "customer 1 is unknown", "%q", got)
	for _, statement := range []string{`DELETE FROM spillway_letters_text`, `UPDATE spillway_letters_text SET seen = 2`, `SELECT letter_payload FROM spillway_letter_bodies`} {
		testkit.Check(t, testkit.Err(db.Exec(statement)) != nil, "the reader may: %s", statement)
	}
	mustExec(t, db, `RESET ROLE`, `DROP OWNED BY `+role, `DROP ROLE `+role)
}
