package e2e_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/askonce"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// stores are all that keep tables.
type stores struct {
	keys    idempotency.Store
	letters *letters.Store
	delay   *delay.Store
	crashes *crashlimit.Store
	redrive *campaigns.Campaigns
}

func openStores(t testing.TB, db *sql.DB) (s stores, err error) {
	t.Helper()
	ctx := t.Context()
	if s.keys, err = idempotency.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if s.letters, err = letters.NewStore(ctx, db, settings.Shared{Service: "shop"}); err != nil {
		return s, err
	}
	if s.delay, err = delay.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if _, err = sequence.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if s.crashes, err = crashlimit.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if _, err = breaker.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if err = openNotices(t, db); err != nil {
		return s, err
	}
	if _, err = askonce.New(ctx, db, "shop", "letters"); err != nil {
		return s, err
	}
	s.redrive, err = campaigns.New(ctx, s.letters, campaigns.Config{})
	return s, err
}

func openNotices(t testing.TB, db *sql.DB) error {
	t.Helper()
	notifier, err := notify.New(notify.Config{Sinks: []notify.Sink{func(context.Context, notify.Notice) error { return nil }}, DB: db, Shared: settings.Shared{Service: "shop"}})
	if err != nil {
		return err
	}
	config := spillway.Config{Publisher: gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)}
	if err := notifier.Observe(&config); err != nil {
		return err
	}
	channel, err := spillway.New(t.Context(), config)
	if err != nil {
		return err
	}
	return notifier.Watch(t.Context(), channel)
}

// runFile runs the statements of a file one by one, as a migration tool does, except those that skip chooses.
func runFile(t testing.TB, db *sql.DB, files fs.FS, name string, skip func(statement string) bool) {
	t.Helper()
	text := testkit.Must(fs.ReadFile(files, name))
	statements := testkit.Must(schema.Split(string(text)))
	for _, statement := range statements {
		if skip != nil && skip(statement) {
			continue
		}
		_, err := db.Exec(statement)
		testkit.Require(t, err == nil, "%s: %v", statement, err)
	}
}

// detected is a database with what a test asks of it.
func detected(t testing.TB, db *sql.DB) *database.Database {
	return testkit.Must(database.Detect(t.Context(), db))
}

// texts reads a column of text, as one text for each row.
func texts(t testing.TB, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.Query(query)
	testkit.Require(t, err == nil, "%s: %v", query, err)
	testkit.NoError(t, database.Each(rows, func(rows *sql.Rows) error {
		var line string
		err := rows.Scan(&line)
		all = append(all, line)
		return err
	}))
	return all
}

// newest is what spillway_schema records of the newest versions of all tables.
var newest = []string{"answers 1", "campaign_events 1", "campaign_letters 1", "campaign_letters 2", "campaigns 1", "campaigns 2", "campaigns 3", "delayed 1", "deliveries 1", "keys 1", "keys 2", "keys 3", "letter_bodies 1", "letter_causes 1", "letter_causes 2", "letter_claims 1", "letter_counts 1", "letter_counts 2", "letter_counts 3", "letter_events 1", "letters 1", "letters 2", "letters 3", "letters 4", "letters 5", "letters 6", "letters 7", "notices 1", "outages 1", "parked 1", "policies 1", "processes 1"}

func wantNewest(t testing.TB, db *sql.DB) {
	t.Helper()
	var got []string
	rows, err := db.Query(`SELECT component, version FROM spillway_schema`)
	if err == nil {
		err = database.Each(rows, func(rows *sql.Rows) error {
			var component string
			var version int
			err := rows.Scan(&component, &version)
			got = append(got, fmt.Sprint(component, " ", version))
			return err
		})
	}
	want := slices.Sorted(slices.Values(newest))
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q: %v", got, want, err)
	}
}

// Features I1, V9: tables that earlier programs made, of each version, recorded or not, are upgraded with their rows.
func TestUpgradeOfEarlierTables(t *testing.T) {
	databases.Each(t, func(t *testing.T, kind databases.Database, _ string) {
		for name, c := range map[string]struct {
			versions int
			recorded bool
		}{"1, not recorded": {1, false}, "1": {1, true}, "2": {2, true}} {
			db := kind.New(t)
			d := detected(t, db)
			unrecorded := func(statement string) bool { return !c.recorded && strings.Contains(statement, "spillway_schema") }
			for version := range c.versions {
				runFile(t, db, os.DirFS("testdata/tables"), fmt.Sprintf("%s/%d.sql", d.Kind(), version+1), unrecorded)
				if version == 0 {
					fillTables(t, d)
				}
			}
			for range 2 {
				s, err := openStores(t, db)
				testkit.Require(t, err == nil, "%s: %v", name, err)
				s.wantRows(t, d)
				wantNewest(t, db)
			}
		}
	})
}

// fillTables writes rows as the first version of each table has them.
func fillTables(t testing.TB, d *database.Database) {
	t.Helper()
	insert := func(statement string, args ...any) {
		t.Helper()
		_, err := d.Exec(t.Context(), d.Statement(statement), args...)
		testkit.Require(t, err == nil, "%s: %v", statement, err)
	}
	insert(`INSERT INTO spillway_keys (consumer, id, outputs, applied_at) VALUES (?, ?, ?, 7)`, d.Text("shop/billing"), d.Text("order"), []byte("out"))
	for _, status := range []string{"waiting", "refused"} {
		insert(`INSERT INTO spillway_dead_letters (identity, dead_letter_topic, id, metadata, payload, origin_topic, handler, class, reason,
	type, stack_hash, description, first_failed_at, last_failed_at, stored_at, status) VALUES (?, ?, ?, ?, ?, ?, ?, 'permanent', ?, ?, ?, ?, 1, 1, 1, ?)`,
			[]byte(status), []byte("orders.dlq"), []byte("order"), []byte{1}, []byte("{}"), []byte("orders"), []byte("billing"),
			d.Bytes("permanent_error"), d.Bytes("*errors.errorString"), d.Bytes(""), d.Bytes("no such customer"), status)
	}
	insert(`INSERT INTO spillway_delayed (service, topic, size, due_at, ready_at, id, metadata, payload) VALUES (?, ?, 9, 1, 1, ?, ?, ?)`,
		[]byte("shop"), []byte("orders"), []byte("order"), []byte{1}, []byte("{}"))
	insert(`INSERT INTO spillway_processes (service, id, node, beat_ms, started_at, beats) VALUES (?, ?, ?, 2000, 1, 3)`,
		d.Text("shop"), d.Text("gone"), d.Text("node"))
	insert(`INSERT INTO spillway_deliveries (service, consumer, id, redrives, delivery, process, marked_at) VALUES (?, ?, ?, 0, 1, ?, 1)`,
		d.Text("shop"), d.Text("billing"), d.Text("order"), d.Text("gone"))
}

// wantRows checks that the stores know what fillTables wrote.
func (s stores) wantRows(t testing.TB, d *database.Database) {
	t.Helper()
	claim := testkit.Must(
		s.keys.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: "order"}}))
	r := claim.Recorded()
	testkit.Check(t, r != nil && string(r.Outputs) == "out", "the key is not applied: %+v", r)
	testkit.Is(t, claim.Release(), nil)
	// Letters of version 1 have no service yet.
	testkit.Must(d.Exec(t.Context(), d.Statement(`UPDATE spillway_dead_letters SET service = ?`), []byte("shop")))
	if n, err := s.letters.Count(t.Context(), letters.Filter{Statuses: []letters.Status{letters.StatusWaiting, letters.StatusRefused}}); err != nil || n != 2 {
		t.Errorf("%d letters: %v", n, err)
	}
	if waiting, err := s.delay.Inside().Waiting(t.Context()); err != nil || len(waiting) != 1 || waiting[0].Topic != "orders" || waiting[0].Messages != 1 {
		t.Errorf("%+v wait: %v", waiting, err)
	}
	got := texts(t, d.DB(), `SELECT process FROM spillway_deliveries UNION ALL SELECT id FROM spillway_processes WHERE beats = 3`)
	testkit.Check(t, slices.Equal(got, []string{"gone", "gone"}), "marks and processes: %q", got)
}

// Features I1, V9: an owner runs the files of Schema by hand. Then a role that may not create tables opens every store,
// and works. Nothing is done a second time.
func TestSchemaByHand(t *testing.T) {
	catalogs := map[database.Kind]string{
		database.Postgres: `SELECT concat(oid, ' ', relname, ' ', relfilenode) FROM pg_class WHERE relnamespace = current_schema()::regnamespace ORDER BY oid`,
		database.MySQL:    `SELECT CONCAT(TABLE_NAME, ' ', CREATE_TIME) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME`,
		database.SQLite:   `PRAGMA schema_version`,
	}
	databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
		owner := kind.Open(t, address)
		d := detected(t, owner)
		files, err := fs.Glob(spillway.Schema(), string(d.Kind())+"/*.sql")
		testkit.Require(t, err == nil && len(files) >= 8, "%v %v", files, err)
		for _, name := range files {
			runFile(t, owner, spillway.Schema(), name, nil)
		}
		wantNewest(t, owner)
		made := texts(t, owner, catalogs[d.Kind()])
		db := owner
		if d.Kind() == database.Postgres {
			db = kind.Open(t, address)
			db.SetMaxOpenConns(1)
			mayOnlyWrite(t, owner, db)
		}
		s := testkit.Must(openStores(t, db))
		fillTables(t, detected(t, db))
		s.wantRows(t, detected(t, db))
		testkit.NoError(t, s.delay.Inside().Put(t.Context(), "orders", message.NewMessage("1", nil), time.Hour))
		testkit.NoError(t, s.letters.Publish("orders.dlq", message.NewMessage("1", nil)))
		now := texts(t, owner, catalogs[d.Kind()])
		testkit.Check(t, slices.Equal(now, made), "the files made %q, and the stores %q", made, now)
	})
}

// mayOnlyWrite gives the only connection of db a role that may read and write the owner's rows, and create nothing.
func mayOnlyWrite(t testing.TB, owner, db *sql.DB) {
	t.Helper()
	role := "spillway_test_" + strings.ToLower(rand.Text()[:12])
	name := texts(t, owner, `SELECT quote_ident(current_schema())`)[0]
	for _, statement := range []string{`CREATE ROLE ` + role, `GRANT USAGE ON SCHEMA ` + name + ` TO ` + role,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ` + name + ` TO ` + role,
		`GRANT USAGE ON ALL SEQUENCES IN SCHEMA ` + name + ` TO ` + role} {
		testkit.Must(owner.Exec(statement))
	}
	t.Cleanup(func() {
		for _, statement := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			testkit.Is(t, testkit.Err(owner.Exec(statement)), nil)
		}
	})
	testkit.Must(db.Exec(`SET ROLE ` + role))
	testkit.Require(t, testkit.Err(db.Exec(`CREATE TABLE mine (id INT)`)) != nil, "the role may create tables")
}
