package database_test

import (
	"context"
	"database/sql"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	kinds "github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

func (d testDatabase) upgrade(t testing.TB, db *sql.DB, table schema.Table) error {
	return database.Of(d.kind, db).Upgrade(t.Context(), table)
}

// madeUp is a table of two versions, as one is after its second release.
var madeUp = schema.Table{Component: "keys", Name: "spillway_keys", Key: []string{"consumer", "id"},
	Files: os.DirFS("testdata/upgrade"), Versions: []schema.Version{
		{File: "0001_made_up.sql", Columns: []string{"consumer", "id", "outputs", "applied_at"}},
		{File: "0002_made_up.sql", Columns: []string{"fingerprint", "version", "fence", "expires_at", "nonce"}},
	}}

// statements are those that make the table, split as a tool would: by the rule that the files state.
func (d testDatabase) statements(t testing.TB) (all []string) {
	t.Helper()
	for _, file := range []struct {
		of   fs.FS
		name string
	}{{schema.Files(), "0001_versions.sql"}, {madeUp.Files, "0001_made_up.sql"}, {madeUp.Files, "0002_made_up.sql"}} {
		text := testkit.Must(fs.ReadFile(file.of, string(d.kind)+"/"+file.name))
		for _, statement := range strings.SplitAfter(string(text), ";\n") {
			if strings.TrimSpace(statement) != "" {
				all = append(all, statement)
			}
		}
	}
	return all
}

// wantKeys checks that keys are at their newest version, with their rows, and that another upgrade changes nothing.
func (d testDatabase) wantKeys(t testing.TB, db *sql.DB, rows string) {
	t.Helper()
	r := text(t, db, d.recorded)
	testkit.Check(t, strings.HasPrefix(r, "keys1 ") && strings.Contains(r, ",keys2 "), "recorded: %s", r)
	before := d.state(t, db)
	testkit.Check(t, strings.Contains(before, "spillway_keys_applied_at") && strings.Count(before, "expires_at") == 1,
		"%v", before)
	testkit.Equal(t, "rows", text(t, db, `SELECT COUNT(*) FROM spillway_keys WHERE id = '1' AND outputs = 'out'
		AND applied_at = 7 AND expires_at IS NULL AND fence IS NULL`), rows)
	testkit.NoError(t, d.upgrade(t, db, madeUp))
	testkit.Equal(t, "once more", d.state(t, db), before)
}

// Feature I1: ten processes that start at once make the table, or upgrade the one that is there with its rows.
func TestUpgrade_tenAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d testDatabase) {
		for rows, before := range map[string][]string{"0": nil, "1": d.unversioned} {
			address := d.create(t)
			exec(t, d.open(t, address), before...)
			start := make(chan struct{})
			var all sync.WaitGroup
			for range 10 {
				db := d.open(t, address)
				testkit.NoError(t, db.Ping())
				all.Go(func() {
					<-start
					testkit.Is(t, d.upgrade(t, db, madeUp), nil)
				})
			}
			close(start)
			all.Wait()
			d.wantKeys(t, d.open(t, address), rows)
		}
	})
}

// Feature I1: an upgrade that ended between any two statements is completed. Nothing is done twice.
func TestUpgrade_cutShort(t *testing.T) {
	onEach(t, func(t *testing.T, d testDatabase) {
		all := d.statements(t)
		for k := range len(all) + 1 {
			for rows, before := range map[string][]string{"0": nil, "1": d.unversioned} {
				db := d.fresh(t, before...)
				exec(t, db, all[:k]...)
				found := d.state(t, db)
				err := d.upgrade(t, db, madeUp)
				testkit.Require(t, err == nil, "after %d statements: %v", k, err)
				testkit.Check(t, k != len(all) || d.state(t, db) == found, "something is done twice")
				d.wantKeys(t, db, rows)
			}
		}
	})
}

// Feature I1: a record without its columns, columns without their record, and a gap in it are made good.
func TestUpgrade_recordIsWrong(t *testing.T) {
	onEach(t, func(t *testing.T, d testDatabase) {
		db := d.fresh(t, d.statements(t)...)
		for _, then := range []string{`INSERT INTO spillway_schema VALUES ('other', 7, 0)`, `DELETE FROM spillway_schema WHERE version = 1`,
			`ALTER TABLE spillway_keys DROP COLUMN fence`, `DROP TABLE spillway_keys`, `DROP TABLE spillway_schema`} {
			exec(t, db, then)
			err, r := d.upgrade(t, db, madeUp), text(t, db, d.recorded)
			testkit.Check(t, err == nil && strings.HasPrefix(r, "keys1") && strings.Contains(r, ",keys2"), "%s: %v, %s", then, err, r)
		}
	})
}

// Feature I1: a table that is not ours, or newer than this program, is refused as it is.
func TestUpgrade_refuses(t *testing.T) {
	const newer = `CREATE TABLE spillway_schema (component VARCHAR(64), version INT, applied_at INT)`
	onEach(t, func(t *testing.T, d testDatabase) {
		key := func(then string) string {
			return strings.Replace(d.unversioned[0], "PRIMARY KEY (consumer, id)", then, 1)
		}
		refused := map[string][]string{
			"primary key () instead of":  {key("UNIQUE (consumer, id)")},
			"primary key (id, consumer)": {key("PRIMARY KEY (id, consumer)")},
			`without column "outputs"`:   {strings.NewReplacer("outputs bytea,", "", "outputs LONGBLOB,", "", "outputs BLOB,", "").Replace(d.unversioned[0])},
			"none after 2: a newer":      {d.unversioned[0], newer, `INSERT INTO spillway_schema VALUES ('other', 5, 0), ('keys', 4, 0)`},
		}
		own := map[database.Kind]map[string][]string{
			database.Postgres: {
				"unlogged": {strings.Replace(d.unversioned[0], "CREATE", "CREATE UNLOGGED", 1)},
				"primary key (consumer) instead of (consumer, id)": {key("PRIMARY KEY (consumer) INCLUDE (id)")},
				"primary key ()": {`CREATE VIEW spillway_keys AS SELECT 1 AS consumer, 2 AS id, 3 AS outputs, 4 AS applied_at`},
			},
			database.MySQL: {
				"MyISAM":         {strings.Replace(d.unversioned[0], "InnoDB", "MyISAM", 1)},
				": consumer;":    {strings.Replace(d.unversioned[0], "consumer VARBINARY", "consumer VARCHAR", 1)},
				": id;":          {strings.Replace(d.unversioned[0], "id VARBINARY(255)", "id VARBINARY(254)", 1)},
				": outputs;":     {strings.Replace(d.unversioned[0], "LONGBLOB", "TEXT COLLATE utf8mb4_bin", 1)},
				": id; text":     {strings.Replace(d.unversioned[0], "id VARBINARY", "id BINARY", 1)},
				": consumer; t":  {key("PRIMARY KEY (consumer(20), id)")},
				"primary key ()": {`CREATE VIEW spillway_keys AS SELECT 1 AS consumer, 2 AS id, 3 AS outputs, 4 AS applied_at`},
				": fingerprint;": {d.unversioned[0], `ALTER TABLE spillway_keys ADD fingerprint VARCHAR(32), ADD version INT, ADD fence INT, ADD expires_at INT, ADD nonce INT`},
			},
		}
		for _, all := range []map[string][]string{refused, own[d.kind]} {
			for want, before := range all {
				db := d.fresh(t, before...)
				found := d.state(t, db)
				testkit.Says(t, d.upgrade(t, db, madeUp), want)
				testkit.Equal(t, want, d.state(t, db), found)
			}
		}
		testkit.Says(t, d.upgrade(t, nil, madeUp), string(d.kind)+": the *sql.DB is nil")
	})
}

// Decision 8, feature I1: connections and databases on which no store can keep its promises are refused.
func TestUpgrade_requires(t *testing.T) {
	for _, path := range []string{":memory:", "", "file::memory:?cache=shared", "file:x?mode=memory&cache=shared"} {
		testkit.Says(t, database.Of(database.SQLite, kinds.SQLite.Open(t, path)).Upgrade(t.Context(), madeUp),
			"no file")
	}
	dsn := mysqltest.Database(t)
	for settings, want := range map[string]string{
		"parseTime=true&interpolateParams=true&clientFoundRows=true&columnsWithAlias=true": "",
		"sql_mode=%27ANSI%27": "", "autocommit=0": "autocommit",
	} {
		err := database.Of(database.MySQL, mysqltest.Open(t, mysqltest.With(dsn, settings))).Upgrade(t.Context(), madeUp)
		testkit.Check(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want)),
			"%s: %v", settings, err)
	}
}

// Feature I1: an upgrade that fails names its file and leaves nothing. One that did not do enough is noticed.
func TestUpgrade_fails(t *testing.T) {
	onEach(t, func(t *testing.T, d testDatabase) {
		db := d.fresh(t, d.unversioned...)
		found := d.state(t, db)
		broken := madeUp
		broken.Files = fstest.MapFS{
			string(d.kind) + "/0001_made_up.sql": {Data: []byte(strings.Join(d.statements(t)[1:3], ""))},
			string(d.kind) + "/0002_made_up.sql": {Data: []byte("ALTER TABLE spillway_keys ADD COLUMN fence BIGINT;\nCREATE nonsense;\n")},
		}
		if err := d.upgrade(t, db, broken); err == nil || !strings.Contains(err.Error(), string(d.kind)+"/0002_made_up.sql") ||
			d.kind != database.MySQL && d.state(t, db) != found {
			t.Errorf("%v\n%s", err, d.state(t, db))
		}
		more := madeUp
		more.Versions = []schema.Version{more.Versions[0], {File: "0002_made_up.sql", Columns: []string{"fence", "more"}}}
		testkit.Says(t, d.upgrade(t, db, more), `without column "more"`)
	})
}

// Feature I1: on MySQL one waits for another that upgrades, no longer than its context lasts.
func TestUpgrade_mysqlWaits(t *testing.T) {
	const name = `CONCAT('spillway_schema.', MD5(DATABASE()))`
	d := databases[1]
	db := d.fresh(t)
	holder := testkit.Must(db.Conn(t.Context()))
	defer func() { _ = holder.Close() }()
	testkit.NoError(t, testkit.Err(holder.ExecContext(t.Context(), `DO GET_LOCK(`+name+`, 10)`)))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // longer than it asks once
	defer cancel()
	testkit.Says(t, database.Of(d.kind, db).Upgrade(ctx, madeUp), "others that upgrade")
	testkit.Check(t, !strings.Contains(d.state(t, db), "spillway"), "it upgrades all the same")
	if err := d.upgrade(t, d.fresh(t), madeUp); err != nil { // in another database of the server
		t.Error(err)
	}
	testkit.NoError(t, testkit.Err(holder.ExecContext(t.Context(), `DO RELEASE_LOCK(`+name+`)`)))
	testkit.Is(t, d.upgrade(t, db, madeUp), nil)
	testkit.Equal(t, "the lock is free", text(t, db, `SELECT IS_FREE_LOCK(`+name+`)`), "1")
}
