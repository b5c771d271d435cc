package database_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	kinds "github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testDatabase is one on which the tests run, with the SQL in which it differs from others.
type testDatabase struct {
	kind   database.Kind
	create func(testing.TB) (address string)
	open   func(t testing.TB, address string) *sql.DB
	// catalog reads all that an upgrade could change.
	catalog []string
	// unversioned makes the table of keys as it was before tables had versions, with a row.
	unversioned []string
	// recorded reads what is recorded of keys.
	recorded string
}

const recorded = ` FROM spillway_schema WHERE component = 'keys' AND applied_at BETWEEN 1.6e12 AND 1e13`

var databases = []testDatabase{
	{
		kind:   database.Postgres,
		create: postgrestest.Schema, open: postgrestest.Open,
		// Objects by their numbers, and rows by their transactions.
		catalog: []string{`SELECT string_agg(concat_ws(' ', c.oid, c.relname, c.relfilenode, a.attname, a.atttypid::regtype, a.xmin), E'\n' ORDER BY c.relname, a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = current_schema()::regnamespace AND a.attnum > 0`},
		unversioned: []string{`CREATE TABLE spillway_keys (consumer text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, outputs bytea, applied_at bigint NOT NULL,
PRIMARY KEY (consumer, id))`, `INSERT INTO spillway_keys VALUES ('billing', '1', 'out', 7)`},
		recorded: `SELECT string_agg(concat(component, version, ' ', xmin), ',' ORDER BY version)` + recorded,
	},
	{
		kind:   database.MySQL,
		create: mysqltest.Database, open: mysqltest.Open,
		catalog: []string{
			`SELECT GROUP_CONCAT(CONCAT_WS(' ', TABLE_NAME, COLUMN_NAME, COLUMN_TYPE) ORDER BY TABLE_NAME, ORDINAL_POSITION) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()`,
			`SELECT GROUP_CONCAT(CONCAT_WS(' ', INDEX_NAME, COLUMN_NAME) ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()`,
			`SELECT GROUP_CONCAT(CONCAT_WS(' ', TABLE_NAME, ENGINE, CREATE_TIME) ORDER BY TABLE_NAME) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()`,
		},
		unversioned: []string{`CREATE TABLE spillway_keys (consumer VARBINARY(255) NOT NULL, id VARBINARY(255) NOT NULL, outputs LONGBLOB, applied_at BIGINT NOT NULL,
PRIMARY KEY (consumer, id)) ENGINE=InnoDB`, `INSERT INTO spillway_keys VALUES ('billing', '1', 'out', 7)`},
		recorded: `SELECT GROUP_CONCAT(CONCAT(component, version, ' ', applied_at) ORDER BY version)` + recorded,
	},
	{
		kind:    database.SQLite,
		create:  func(t testing.TB) string { return filepath.Join(t.TempDir(), "test.db") }, // without a busy time-out of the driver
		open:    kinds.SQLite.Open,
		catalog: []string{`PRAGMA schema_version`, `SELECT group_concat(sql, ';') FROM sqlite_master`},
		unversioned: []string{`CREATE TABLE spillway_keys (consumer TEXT NOT NULL, id TEXT NOT NULL, outputs BLOB, applied_at INTEGER NOT NULL,
PRIMARY KEY (consumer, id))`, `INSERT INTO spillway_keys VALUES ('billing', '1', 'out', 7)`},
		recorded: `SELECT group_concat(component || version || ' ' || applied_at) FROM (SELECT *` + recorded + ` ORDER BY version)`,
	},
}

var exec, text = kinds.Exec, kinds.Text

func onEach(t *testing.T, test func(t *testing.T, d testDatabase)) {
	for _, d := range databases {
		t.Run(string(d.kind), func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

// fresh opens a new database after statements have run.
func (d testDatabase) fresh(t testing.TB, statements ...string) *sql.DB {
	t.Helper()
	db := d.open(t, d.create(t))
	exec(t, db, statements...)
	return db
}

// state is all that an upgrade could change.
func (d testDatabase) state(t testing.TB, db *sql.DB) string {
	t.Helper()
	var all []string
	for _, question := range d.catalog {
		all = append(all, text(t, db, question))
	}
	if strings.Contains(strings.Join(all, ""), "spillway_schema") {
		all = append(all, text(t, db, d.recorded))
	}
	return strings.Join(all, "\n")
}
