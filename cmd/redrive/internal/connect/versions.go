package connect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

var recorded = regexp.MustCompile(`(?s)INSERT (?:IGNORE )?INTO spillway_schema.*?'(\w+)', (\d+),`)

// newestOf reads the versions that the SQL of this release makes.
func newestOf(kind string) (map[string]int, error) {
	newest := map[string]int{}
	files, err := fs.Glob(spillway.Schema(), kind+"/*.sql")
	if err == nil && len(files) == 0 {
		err = errors.New("no files of SQL for " + kind)
	}
	for _, file := range files {
		text, err := fs.ReadFile(spillway.Schema(), file)
		if err != nil {
			return nil, err
		}
		for _, match := range recorded.FindAllSubmatch(text, -1) {
			version, _ := strconv.Atoi(string(match[2]))
			newest[string(match[1])] = max(newest[string(match[1])], version)
		}
	}
	return newest, err
}

// ErrMissing is the error of tables that are not there.
var ErrMissing = errors.New("no tables")

// Require returns an error unless the tables of the components that begin so are there, at the versions that this command
// knows.
func Require(ctx context.Context, db *sql.DB, begins string) error {
	return compare(ctx, db, begins, false)
}

// Compare returns an error if a table that is there has a version that this command does not know, or no more.
func Compare(ctx context.Context, db *sql.DB) error { return compare(ctx, db, "", true) }

func compare(ctx context.Context, db *sql.DB, begins string, mayMiss bool) error {
	on, err := database.Detect(ctx, db)
	if err != nil {
		return err
	}
	newest, err := newestOf(string(on.Kind()))
	if err != nil {
		return err
	}
	all, err := (&operate.Desk{DB: db}).Tables(ctx)
	if err != nil {
		return fmt.Errorf("the table spillway_schema cannot be read: either this is not the database of a service "+
			"with Spillway, or the role may not read it: %w", err)
	}
	for _, component := range slices.Sorted(maps.Keys(newest)) {
		found, known := all[component], newest[component]
		switch {
		case !strings.HasPrefix(component, begins), found == known, found == 0 && mayMiss:
		case found == 0:
			if hidden, err := Hidden(ctx, db); err != nil || slices.Contains(hidden, "spillway_schema") {
				return errors.Join(err, errors.New("row-level security hides the rows of spillway_schema from this role, so "+
					"that it seems to have no tables: use a role with BYPASSRLS, or add a policy that shows them"))
			}
			return fmt.Errorf("%w: the tables of %s are not in this database: its service makes them when it starts; is --db "+
				"the service's database?", ErrMissing, component)
		case found < known:
			return fmt.Errorf("the tables of %s have version %d, and this command needs version %d: upgrade the service first, "+
				"or use the command of its release; redrive upgrades no table, because services of the earlier release would not "+
				"start again", component, found, known)
		default:
			return fmt.Errorf("the tables of %s have version %d, and this command knows version %d: use the command of the "+
				"service's release", component, found, known)
		}
	}
	return nil
}

// MostServices is how many services Services returns at most.
const MostServices = 50

// Services returns the services that have dead letters, at most MostServices of them, in the order of their names.
func Services(ctx context.Context, db *sql.DB) ([]string, error) {
	known, err := database.Detect(ctx, db)
	if err != nil {
		return nil, err
	}
	var all []string
	condition := ""
	var args []any
	for len(all) < MostServices { // each step reads one entry of the index: the table may have millions of rows
		var next []byte
		found := false // the driver of SQLite returns nil for the name of no bytes
		err := known.Query(ctx, func() {
			found = false
		}, func(rows *sql.Rows) error { found = true; return rows.Scan(&next) },
			known.Statement(`SELECT service FROM spillway_dead_letters`+condition+` ORDER BY service LIMIT 1`), args...)
		if err != nil {
			return nil, fmt.Errorf("the table spillway_dead_letters cannot be read: %w", err)
		}
		if !found {
			break
		}
		all = append(all, string(next))
		// bytes, as the column has: in SQLite they are greater than every text
		condition, args = ` WHERE service > ?`, []any{append([]byte{}, next...)}
	}
	return all, nil
}

// MayNot reports whether a statement failed because the role may only look.
func MayNot(err error) bool {
	var postgres *pgconn.PgError
	if errors.As(err, &postgres) {
		return postgres.Code == "42501" || postgres.Code == "25006"
	}
	var mariadb *mysql.MySQLError
	if errors.As(err, &mariadb) {
		return slices.Contains([]uint16{1044, 1142, 1143, 1227, 1290, 1792}, mariadb.Number)
	}
	var file *sqlite.Error
	return errors.As(err, &file) && file.Code()&0xff == sqlite3.SQLITE_READONLY
}

// Hidden returns those of Spillway's tables whose rows PostgreSQL hides from this role, unless a policy of row-level
// security shows them. What is hidden looks as if it were not there.
func Hidden(ctx context.Context, db *sql.DB) ([]string, error) {
	return tablesWhere(ctx, db, `row_security_active(c.oid)`)
}

// needed is what a table needs to be looked at, or worked on.
const needed = `CASE WHEN has_table_privilege(c.oid, 'SELECT') THEN
	CASE WHEN c.relname NOT IN ('spillway_dead_letters', 'spillway_letter_counts', 'spillway_letter_causes')
		OR has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') THEN '' ELSE 'work' END
	ELSE 'look' END`

// MayNotLook returns those of Spillway's tables that this role may not read.
func MayNotLook(ctx context.Context, db *sql.DB) ([]string, error) {
	return tablesWhere(ctx, db, needed+` = 'look'`)
}

// MayNotWork returns the tables of letters that this role may read, and not change.
func MayNotWork(ctx context.Context, db *sql.DB) ([]string, error) {
	return tablesWhere(ctx, db, needed+` = 'work'`)
}

// tablesWhere returns Spillway's tables for which PostgreSQL says so. Another database has none.
func tablesWhere(ctx context.Context, db *sql.DB, is string) (names []string, err error) {
	known, err := database.Detect(ctx, db)
	if err != nil || known.Kind() != database.Postgres {
		return nil, err
	}
	err = known.Query(ctx, func() { names = nil }, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, `SELECT c.relname::text FROM pg_class c WHERE c.relname LIKE 'spillway\_%' AND c.relkind IN ('r', 'p')
	AND pg_table_is_visible(c.oid) AND `+is+` ORDER BY c.relname`)
	if err != nil {
		return nil, fmt.Errorf("ask what this role may see: %w", err)
	}
	return names, nil
}
