package mysql_test

import (
	"context"
	"database/sql"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/database/mysql"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/schema"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// unversioned is what was made before tables had versions, with a row.
var unversioned = []string{`CREATE TABLE spillway_keys (consumer VARBINARY(255) NOT NULL, id VARBINARY(255) NOT NULL, outputs LONGBLOB,
applied_at BIGINT NOT NULL, PRIMARY KEY (consumer, id)) ENGINE=InnoDB`, `INSERT INTO spillway_keys VALUES ('billing', '1', 'out', 7)`}

func exec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func text(t *testing.T, db *sql.DB, question string) string {
	t.Helper()
	var s sql.NullString
	if err := db.QueryRow(question).Scan(&s); err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return s.String
}

// catalog tells everything that an upgrade could change.
func catalog(t *testing.T, db *sql.DB) (s string) {
	t.Helper()
	for _, question := range []string{
		`SELECT GROUP_CONCAT(CONCAT_WS(' ', TABLE_NAME, COLUMN_NAME, COLUMN_TYPE) ORDER BY TABLE_NAME, ORDINAL_POSITION) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()`,
		`SELECT GROUP_CONCAT(CONCAT_WS(' ', INDEX_NAME, COLUMN_NAME) ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()`,
		`SELECT GROUP_CONCAT(CONCAT_WS(' ', TABLE_NAME, ENGINE, CREATE_TIME) ORDER BY TABLE_NAME) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()`,
	} {
		s += text(t, db, question) + "\n"
	}
	return s
}

func recorded(t *testing.T, db *sql.DB) string {
	t.Helper()
	return text(t, db, `SELECT GROUP_CONCAT(CONCAT(component, version, ' ', applied_at) ORDER BY version) FROM spillway_schema WHERE component = 'keys' AND applied_at BETWEEN 1.6e12 AND 1e13`)
}

// statements are those of the files, split as a tool would: by the rule that the files state.
func statements(t *testing.T) (all []string) {
	t.Helper()
	files, err := fs.Glob(keytable.Files(), "mysql/*.sql")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(keytable.Files(), file)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range strings.SplitAfter(string(text), ";\n") {
			if strings.TrimSpace(statement) != "" {
				all = append(all, statement)
			}
		}
	}
	return all
}

func wantUpgraded(t *testing.T, db *sql.DB, rows string) {
	t.Helper()
	if r := recorded(t, db); !strings.HasPrefix(r, "keys1 ") || !strings.Contains(r, ",keys2 ") {
		t.Errorf("recorded: %s", r)
	}
	if c := catalog(t, db); strings.Count(c, "spillway_keys_applied_at applied_at") != 1 || strings.Count(c, "expires_at") != 1 {
		t.Error(c)
	}
	if got := text(t, db, `SELECT COUNT(*) FROM spillway_keys WHERE id = '1' AND outputs = 'out' AND applied_at = 7 AND expires_at IS NULL AND fence IS NULL`); got != rows {
		t.Errorf("%s rows, want %s", got, rows)
	}
	before := catalog(t, db) + recorded(t, db)
	if err := mysql.Upgrade(t.Context(), db, keytable.MySQL); err != nil || catalog(t, db)+recorded(t, db) != before {
		t.Errorf("once more: %v", err)
	}
}

// Feature I1: ten processes that start at once make the table, or upgrade the one that is there with its rows.
func TestUpgrade(t *testing.T) {
	for rows, before := range map[string][]string{"0": nil, "1": unversioned} {
		dsn := mysqltest.Database(t)
		exec(t, mysqltest.Open(t, dsn), before...)
		start := make(chan struct{})
		var all sync.WaitGroup
		for range 10 {
			db := mysqltest.Open(t, dsn)
			if err := db.Ping(); err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				<-start
				if err := mysql.Upgrade(t.Context(), db, keytable.MySQL); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		wantUpgraded(t, mysqltest.Open(t, dsn), rows)
	}
}

// Feature I1: an upgrade that ended between any two statements, and one that a user makes by hand, is completed.
func TestUpgradeCutShort(t *testing.T) {
	all := statements(t)
	for k := range len(all) + 1 {
		for rows, before := range map[string][]string{"0": nil, "1": unversioned} {
			db := mysqltest.Open(t, mysqltest.Database(t))
			exec(t, db, before...)
			exec(t, db, all[:k]...)
			found := catalog(t, db)
			if err := mysql.Upgrade(t.Context(), db, keytable.MySQL); err != nil {
				t.Fatalf("after %d statements: %v", k, err)
			}
			if k == len(all) && catalog(t, db) != found {
				t.Error("something is done twice")
			}
			wantUpgraded(t, db, rows)
		}
	}
}

// Feature I1: a record without its columns, as after a restored backup, and columns without their record are made good.
// What is recorded of other tables does not matter.
func TestUpgradeRecordIsWrong(t *testing.T) {
	db := mysqltest.Open(t, mysqltest.Database(t))
	exec(t, db, statements(t)...)
	for _, then := range []string{`INSERT INTO spillway_schema VALUES ('other', 7, 0)`, `DELETE FROM spillway_schema WHERE version = 1`,
		`ALTER TABLE spillway_keys DROP COLUMN fence`, `DROP TABLE spillway_keys`, `DROP TABLE spillway_schema`} {
		exec(t, db, then)
		if err := mysql.Upgrade(t.Context(), db, keytable.MySQL); err != nil {
			t.Errorf("%s: %v", then, err)
		}
		wantUpgraded(t, db, "0")
	}
}

// Feature I1: one waits for another that upgrades, no longer than its context lasts.
func TestUpgradeWaits(t *testing.T) {
	db := mysqltest.Open(t, mysqltest.Database(t))
	holder, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }()
	if _, err := holder.ExecContext(t.Context(), `DO GET_LOCK(CONCAT('spillway_schema.', MD5(DATABASE())), 10)`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // longer than it asks once
	defer cancel()
	if err := mysql.Upgrade(ctx, db, keytable.MySQL); err == nil || !strings.Contains(err.Error(), "others that upgrade") {
		t.Error(err)
	}
	if c := catalog(t, db); strings.Contains(c, "spillway") {
		t.Error(c)
	}
	if _, err := holder.ExecContext(t.Context(), `DO RELEASE_LOCK(CONCAT('spillway_schema.', MD5(DATABASE())))`); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the lock is given back
		other := mysqltest.Database(t)
		if err := mysql.Upgrade(t.Context(), mysqltest.Open(t, other), keytable.MySQL); err != nil {
			t.Error(err)
		}
	}
	if err := mysql.Upgrade(t.Context(), db, keytable.MySQL); err != nil {
		t.Error(err)
	}
	if free := text(t, db, `SELECT IS_FREE_LOCK(CONCAT('spillway_schema.', MD5(DATABASE())))`); free != "1" {
		t.Error("the lock is kept")
	}
}

// Feature I1: what is not ours, or newer than we are, is refused as it is, and a failure names its file.
func TestUpgradeRefuses(t *testing.T) {
	for want, before := range map[string][]string{
		"primary key ()":       {`CREATE TABLE spillway_keys (consumer VARBINARY(255), id VARBINARY(255), outputs LONGBLOB, applied_at BIGINT)`},
		`column "applied_at"`:  {`CREATE TABLE spillway_keys (consumer VARBINARY(255), id VARBINARY(255), outputs LONGBLOB, PRIMARY KEY (consumer, id))`},
		"MyISAM":               {strings.Replace(unversioned[0], "InnoDB", "MyISAM", 1)},
		": consumer;":          {strings.Replace(unversioned[0], "consumer VARBINARY", "consumer VARCHAR", 1)},
		"none after 2: a newe": {unversioned[0], `CREATE TABLE spillway_schema (component TEXT, version INT)`, `INSERT INTO spillway_schema VALUES ('other', 4), ('keys', 3)`},
		": fingerprint;":       {unversioned[0], `ALTER TABLE spillway_keys ADD fingerprint VARCHAR(32), ADD version INT, ADD fence INT, ADD expires_at INT`, statements(t)[0], `INSERT INTO spillway_schema VALUES ('keys', 1, 0), ('keys', 2, 0)`},
	} {
		db := mysqltest.Open(t, mysqltest.Database(t))
		exec(t, db, before...)
		found := catalog(t, db)
		if err := mysql.Upgrade(t.Context(), db, keytable.MySQL); err == nil || !strings.Contains(err.Error(), want) || catalog(t, db) != found {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := mysql.Upgrade(t.Context(), nil, keytable.MySQL); err == nil {
		t.Error("a nil db passes")
	}
	dsn := mysqltest.Database(t)
	if err := mysql.Upgrade(t.Context(), mysqltest.Open(t, mysqltest.With(dsn, "autocommit=0")), keytable.MySQL); err == nil || !strings.Contains(err.Error(), "autocommit") {
		t.Error(err)
	}
	broken := keytable.MySQL
	broken.Steps = append([]schema.Step{}, broken.Steps...)
	broken.Steps[1].Statements = []string{`CREATE nonsense`}
	if err := mysql.Upgrade(t.Context(), mysqltest.Open(t, dsn), broken); mysql.Number(err) != 1064 || !strings.Contains(err.Error(), "mysql/0002_leases.sql") {
		t.Error(err)
	}
}

// Feature I1: a user without rights starts where the table is current, recorded or not, and else is told the file.
func TestUpgradeWithoutRights(t *testing.T) {
	dsn := mysqltest.Database(t)
	owner := mysqltest.Open(t, dsn)
	exec(t, owner, unversioned...)
	db := mysqltest.Open(t, mysqltest.With(dsn, "tx_read_only=1")) // stands for a user without rights
	if err := mysql.Upgrade(t.Context(), db, keytable.MySQL); mysql.Number(err) != 1792 || !strings.Contains(err.Error(), "mysql/0001_keys.sql") {
		t.Errorf("an old table: %v", err)
	}
	exec(t, owner, statements(t)...)
	for _, then := range []string{`SELECT 1`, `DELETE FROM spillway_schema WHERE version = 2`, `DROP TABLE spillway_schema`} {
		exec(t, owner, then)
		if err := mysql.Upgrade(t.Context(), db, keytable.MySQL); err != nil {
			t.Errorf("%s: %v", then, err)
		}
	}
}
