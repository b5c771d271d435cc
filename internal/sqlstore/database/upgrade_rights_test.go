package database_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I1: on PostgreSQL the table is upgraded where it is along the search path, and gets no empty twin.
func TestUpgrade_searchPath(t *testing.T) {
	d := databases[0]
	db := d.fresh(t, d.unversioned...)
	behind := text(t, db, `SELECT current_schema()`)
	first := d.fresh(t)
	first.SetMaxOpenConns(1)
	exec(t, first, `SELECT set_config('search_path', current_schema() || ', "no such Schema", `+behind+`', false)`,
		`CREATE TABLE spillway_schema (component text, version bigint, applied_at bigint)`, `INSERT INTO spillway_schema VALUES ('keys', 4, 0)`)
	found := d.state(t, first)
	testkit.NoError(t, d.upgrade(t, first, madeUp))
	testkit.Equal(t, "state", d.state(t, first), found)
	d.wantKeys(t, db, "1")
	exec(t, first, `INSERT INTO spillway_keys (consumer, id, applied_at, fence) VALUES ('c', 'i', 1, 1)`)
}

// restricted opens the owner's database for a role that may read and write rows, and nothing else. On MySQL and SQLite
// a session that may only read stands for it.
func (d testDatabase) restricted(t testing.TB, address string, owner *sql.DB) *sql.DB {
	t.Helper()
	switch d.kind {
	case database.MySQL:
		return d.open(t, mysqltest.With(address, "tx_read_only=1"))
	case database.SQLite:
		return d.open(t, "file:"+address+"?mode=ro")
	}
	role := "spillway_test_" + strings.ToLower(rand.Text()[:12])
	exec(t, owner, `CREATE ROLE `+role)
	t.Cleanup(func() { exec(t, owner, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	exec(t, owner, fmt.Sprintf(`DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %%I TO %s', current_schema()); END $$`, role),
		`ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO `+role)
	db := d.open(t, address)
	db.SetMaxOpenConns(1)
	exec(t, db, `SET ROLE `+role)
	return db
}

// Feature I1: a role without rights starts where the table is current. Otherwise the error names the file.
func TestUpgrade_withoutRights(t *testing.T) {
	onEach(t, func(t *testing.T, d testDatabase) {
		address := d.create(t)
		owner := d.open(t, address)
		exec(t, owner, `CREATE TABLE something (id INT)`)
		db := d.restricted(t, address, owner)
		exec(t, owner, d.unversioned...)
		err := d.upgrade(t, db, madeUp)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), string(d.kind)+"/0001_made_up.sql"),
			"an old table: %v", err)
		testkit.Check(t, d.kind == database.SQLite || postgres.State(err) == "42501" || mysql.Number(err) == 1792,
			"the cause is lost: %v", err)
		exec(t, owner, d.statements(t)...)
		then := []string{`SELECT 1`, `DELETE FROM spillway_schema WHERE version = 2`, `DROP TABLE spillway_schema`}
		if d.kind == database.Postgres {
			then = append([]string{`REVOKE ALL ON spillway_schema FROM PUBLIC`}, then...)
		}
		for _, then := range then {
			exec(t, owner, then)
			err := d.upgrade(t, db, madeUp)
			testkit.Check(t, err == nil, "%s: %v", then, err)
		}
		if d.kind == database.Postgres {
			exec(t, db, `RESET ROLE`, `SET default_transaction_read_only = on`)
			testkit.Is(t, d.upgrade(t, db, madeUp), nil)
		}
	})
}
