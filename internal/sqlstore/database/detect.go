package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/sqlite"
)

// supported are the databases that a store can be on.
const supported = "PostgreSQL 11, MySQL 8.0.13, MariaDB 10.6, SQLite 3.35, or a later version of one of them"

// Detect asks db which kind of database it is. It asks version() first: PostgreSQL logs the questions that it does not
// understand. A database that is none of the supported ones is an error, and so is a nil db.
func Detect(ctx context.Context, db *sql.DB) (*Database, error) {
	if db == nil {
		return nil, errors.New("the *sql.DB is nil: give an open database: " + supported)
	}
	version, err := ask(ctx, db)
	if err != nil {
		return nil, err
	}
	kind, ok := kindOf(version)
	if !ok {
		return nil, fmt.Errorf("the database is %q, and must be %s", boundedtext.Text(version, 200), supported)
	}
	if kind == Postgres {
		if err := requireSessions(ctx, db); err != nil {
			return nil, err
		}
	}
	return Of(kind, db), nil
}

// ask returns the version that the server tells. What a server answers to version() but its version is an error of its
// own.
func ask(ctx context.Context, db *sql.DB) (version string, err error) {
	question := func(text string) error {
		return sqlite.WhileBusy(ctx, func() error { return db.QueryRowContext(ctx, text).Scan(&version) })
	}
	if err = question(`SELECT version()`); err == nil {
		return version, nil
	}
	if postgres.State(err) == "" && mysql.Number(err) == 0 && question(`SELECT sqlite_version()`) == nil {
		return "SQLite " + version, nil
	}
	err = fmt.Errorf("ask the database for its version: %w", postgres.WithRemedy(err))
	state, number := postgres.State(err), mysql.Number(err)
	switch {
	case ctx.Err() != nil:
		return "", err
	case state == "28P01" || state == "28000" || number == 1045 || number == 1698:
		return "", fmt.Errorf("%w; it refuses the user of the *sql.DB: correct the name, the password, or who may log in", err)
	case state == "3D000" || number == 1049:
		return "", fmt.Errorf("%w; there is no database of this name: correct the address of the *sql.DB", err)
	case strings.HasSuffix(err.Error(), "sql: database is closed"): // database/sql has no name for it
		return "", fmt.Errorf("%w; give the *sql.DB before it is closed", err)
	case strings.Contains(err.Error(), "unable to open database file"): // every driver of SQLite says so
		return "", fmt.Errorf("%w; see that the folder of the file is there, and that this process may write in it", err)
	}
	return "", fmt.Errorf("%w; see that it answers at the address of the *sql.DB, and is %s", err, supported)
}

// versions are what servers answer: a prefix, the words that a version must or must not have, and the least version.
var versions = []struct {
	kind         Kind
	prefix, word string
	major, minor int
}{
	{Postgres, "PostgreSQL ", "", 11, 0},
	{SQLite, "SQLite ", "", 3, 35},
	{MySQL, "", "MariaDB", 10, 6},
	{MySQL, "", "", 8, 0},
}

var number = regexp.MustCompile(`^(\d+)(?:\.(\d+))?`)

// kindOf reports which kind of database a version is of. TiDB speaks as MySQL does, and knows no SKIP LOCKED.
func kindOf(version string) (Kind, bool) {
	for _, known := range versions {
		rest, found := strings.CutPrefix(version, known.prefix)
		if !found || !strings.Contains(rest, known.word) {
			continue
		}
		parts := number.FindStringSubmatch(rest)
		if parts == nil || strings.Contains(rest, "TiDB") {
			return "", false
		}
		major, _ := strconv.Atoi(parts[1])
		minor, _ := strconv.Atoi(parts[2])
		return known.kind, major > known.major || major == known.major && minor >= known.minor
	}
	return "", false
}

// readOnly asks a server whether it only reads. SQLite says so at the first write.
var readOnly = map[Kind]string{
	Postgres: `SELECT CASE WHEN pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on' THEN 1 ELSE 0 END`,
	MySQL:    `SELECT CASE WHEN @@global.innodb_read_only THEN 'ON' ELSE @@global.read_only END`,
}

// PrimaryRemedy is what to do about a server that only reads.
const PrimaryRemedy = "the database only reads: it is a standby, a replica, or set to read-only; give the address of the primary, " +
	"with pgx as host=a,b and target_session_attrs=read-write, with MySQL's driver as rejectReadOnly=true and an address that follows it"

var errReadOnly = errors.New(PrimaryRemedy)

// ReadOnly reports whether a server refused a statement because it only reads.
func ReadOnly(err error) bool {
	return postgres.State(err) == "25006" || slices.Contains([]uint16{mysql.ReadOnlyTable, 1290, 1792, 1836}, mysql.Number(err))
}

// RequirePrimary returns an error if db leads to a server that only reads. A service would hold all its messages.
func RequirePrimary(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	on, err := Detect(ctx, db)
	if err != nil {
		return err
	}
	question, asks := readOnly[on.kind]
	if !asks {
		return nil
	}
	var only string
	if err := db.QueryRowContext(ctx, question).Scan(&only); err != nil {
		return fmt.Errorf("ask the database whether it only reads: %w", err)
	}
	if only == "0" || only == "OFF" {
		return nil
	}
	return errReadOnly
}
