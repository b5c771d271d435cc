package e2e_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/breaker/sqlshare"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit/sqlmarks"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// stores are all that keep tables.
type stores struct {
	keys    idempotency.Store
	letters *letters.Store
	delay   *delay.Store
	crashes crashlimit.Store
	redrive *campaigns.Campaigns
}

func openStores(t testing.TB, db *sql.DB) (s stores, err error) {
	t.Helper()
	ctx := t.Context()
	if s.keys, err = idempotency.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if s.letters, err = letters.NewStore(ctx, db, letters.Config{Service: "shop"}); err != nil {
		return s, err
	}
	if s.delay, err = delay.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if _, err = sequence.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if s.crashes, err = sqlmarks.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if _, err = sqlshare.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if err = openNotices(t, db); err != nil {
		return s, err
	}
	s.redrive, err = campaigns.New(ctx, s.letters, campaigns.Config{})
	return s, err
}

func openNotices(t testing.TB, db *sql.DB) error {
	t.Helper()
	notifier, err := notify.New(notify.Config{Sinks: []notify.Sink{func(context.Context, notify.Notice) error { return nil }}, DB: db, Service: "shop"})
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

// runFile runs the statements of a file one by one, as a migration tool does.
func runFile(t testing.TB, db *sql.DB, files fs.FS, name string) {
	t.Helper()
	text := testkit.Must(fs.ReadFile(files, name))
	statements := testkit.Must(schema.Split(string(text)))
	for _, statement := range statements {
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
	testkit.NoError(t, database.Each(t.Context(), db, database.Into(&all), query))
	return all
}

// newest is what spillway_schema records of the newest versions of all tables.
var newest = []string{"campaign_events 1", "campaign_letters 1", "campaigns 1", "cause_notes 1", "delayed 1", "deliveries 1",
	"keys 1", "letter_bodies 1", "letter_causes 1", "letter_claims 1", "letter_counts 1", "letter_events 1", "letters 1",
	"notices 1", "outages 1", "parked 1", "policies 1", "processes 1"}

func wantNewest(t testing.TB, db *sql.DB) {
	t.Helper()
	var got []string
	err := database.Each(t.Context(), db, func(rows *sql.Rows) error {
		var component string
		var version int
		err := rows.Scan(&component, &version)
		got = append(got, fmt.Sprint(component, " ", version))
		return err
	}, `SELECT component, version FROM spillway_schema`)
	want := slices.Sorted(slices.Values(newest))
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q: %v", got, want, err)
	}
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
			runFile(t, owner, spillway.Schema(), name)
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
		testkit.NoError(t, delays.In(s.delay).Put(t.Context(), "orders", message.NewMessage("1", nil), time.Hour))
		testkit.NoError(t, s.letters.Publish("orders.dlq", message.NewMessage("1", nil)))
		claim := testkit.Must(s.keys.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: "1"}}))
		testkit.NoError(t, claim.Release())
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
