// Package database is the one place that knows what a database is. A store says its tables and its statements, and
// nothing else:
//
//	db, err := database.Open(ctx, "shop: NewStore", pool, service, table)
//	put := db.Statement(`INSERT INTO t (id, at) VALUES (?, now_ms())`)
//	_, err = db.Exec(ctx, put, db.Text(id))             // again while others are in the way
//	err = db.Write(ctx, func(tx *sql.Tx) error { ... }) // so is a transaction
//
// # Adding a table
//
// Open asks the server whether it is PostgreSQL, MySQL, MariaDB or SQLite, and brings the tables to their newest
// version, with their rows. Write a file of SQL into each folder of schema/files, under the next number. Its last
// statement records the component and its version in spillway_schema. Then declare a schema.Table that names the file
// and its columns, and pass it to Open. A new column is a file more, and a schema.Version more.
//
// # Adding a database
//
// Write a package beside postgres, mysql and sqlite with an Engine, and add it to the engines in this file, with its
// name to detect. The folder of schema files has the engine's name. The tests of this package run on every database
// that databases in main_test.go lists.
package database

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/sqlite"
)

// Kind is a kind of database. It is the name of its folder of schema files.
type Kind string

const (
	Postgres Kind = "postgres"
	MySQL    Kind = "mysql" // and MariaDB
	SQLite   Kind = "sqlite"
)

var engines = map[Kind]engine{Postgres: inPostgres{}, MySQL: inMySQL{}, SQLite: sqlite.Engine{}}

// engine is what each kind of database does in its own way.
type engine interface {
	Statement(text string) string
	Text(s string) any
	Bytes(s string) any
	SkipLocked() string
	// Write runs work in a transaction. Again runs one statement. Read runs a statement that does not write. All of
	// them run it again if others were in its way.
	Write(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error
	Again(ctx context.Context, db *sql.DB, statement func() error) error
	Read(ctx context.Context, read func() error) error
	// Planned runs a query that is planned for its values, and not for any.
	Planned(ctx context.Context, db *sql.DB, read func(schema.Session) error) error
	Largest(ctx context.Context, db *sql.DB) (int, error)
	TooLarge(err error, size, limit int) bool

	// Require returns an error for a database, or connections, on which no store can keep its promises.
	Require(ctx context.Context, db *sql.DB) error
	Describe(ctx context.Context, s schema.Session, t schema.Table) (schema.Found, error)
	// Recorded returns the versions of a component that spillway_schema records, or none if there is no such table.
	Recorded(ctx context.Context, s schema.Session, f schema.Found, component string) ([]int, error)
	// Alone runs work while no other process makes or upgrades tables.
	Alone(ctx context.Context, db *sql.DB, t schema.Table, work func(schema.Session) error) error
	// IsThere reports whether a statement failed because what it makes is there.
	IsThere(err error) bool
	// MayNot reports whether a statement failed because the role has no right to change anything.
	MayNot(err error) bool

	// Taken reports whether a statement failed because a row with the same unique key is there, and PrimaryTaken
	// whether that is the primary key of t. Behind reports whether the counter of t is behind its rows, and Renumber
	// returns the statement that sets it.
	Taken(err error) bool
	PrimaryTaken(err error, t schema.Table) bool
	Behind(ctx context.Context, s schema.Session, t schema.Table) (bool, error)
	Renumber(t schema.Table) string
}

// Database is a *sql.DB of a known kind. It is safe for concurrent use.
type Database struct {
	db      *sql.DB
	kind    Kind
	engine  engine
	largest int // see Largest
}

// Of returns the Database of a *sql.DB whose kind is known. Detect asks for the kind.
func Of(kind Kind, db *sql.DB) *Database { return &Database{db: db, kind: kind, engine: engines[kind]} }

// DB returns the *sql.DB.
func (d *Database) DB() *sql.DB { return d.db }

// Kind returns the kind of database.
func (d *Database) Kind() Kind { return d.kind }

// Statement returns the statement in the database's own SQL. It replaces question marks by the database's placeholders,
// now_ms() by its clock in milliseconds since 1970 at the moment of evaluation, and now_us() by its clock in
// microseconds since 1970 at the moment at which the statement came in. Both can stand in a condition on an index only
// as now_us().
func (d *Database) Statement(text string) string { return d.engine.Statement(text) }

// Text binds s for a column of text: text in PostgreSQL, VARBINARY in MySQL, TEXT in SQLite. In PostgreSQL s must be
// UTF-8 without NUL, as Column makes it.
func (d *Database) Text(s string) any { return d.engine.Text(s) }

// Bytes binds s, whatever bytes it has, for a column of bytes: bytea in PostgreSQL, VARBINARY or LONGBLOB in MySQL, and
// TEXT in SQLite, which does not look at them.
func (d *Database) Bytes(s string) any { return d.engine.Bytes(s) }

// SkipLocked is what comes behind a query of rows to take, so that it locks them and passes over those that others have
// locked. It is empty if only one transaction can write at a time.
func (d *Database) SkipLocked() string { return d.engine.SkipLocked() }

// Write runs work in a transaction, READ COMMITTED on a server and alone among the writers of this process on SQLite.
// It runs work again if the database undid the transaction because of others. What a failed run did is undone. Work
// must return the error of a statement and write nothing after it.
func (d *Database) Write(ctx context.Context, work func(*sql.Tx) error) error {
	return d.engine.Write(ctx, d.db, work)
}

// Exec runs one statement that writes, as Write does, and returns how many rows it changed.
func (d *Database) Exec(ctx context.Context, statement string, args ...any) (rows int64, err error) {
	err = d.engine.Again(ctx, d.db, func() error {
		result, err := d.db.ExecContext(ctx, statement, args...)
		if err == nil {
			rows, err = result.RowsAffected()
		}
		return err
	})
	return rows, err
}

// Return runs one statement that writes and returns rows, as Exec does, and calls scan with each row. It calls reset
// before the first row.
func (d *Database) Return(ctx context.Context, reset func(), scan func(*sql.Rows) error, statement string,
	args ...any) error {
	return d.engine.Again(ctx, d.db, func() error {
		reset()
		return Each(ctx, d.db, scan, statement, args...)
	})
}

// Read runs read, and again if a writer was in its way.
func (d *Database) Read(ctx context.Context, read func() error) error {
	return d.engine.Read(ctx, read)
}

// Query runs a query and calls scan with each row. If a writer was in its way, it calls reset and begins again. reset
// is also called before the first row.
func (d *Database) Query(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string,
	args ...any) error {
	return d.Read(ctx, func() error {
		reset()
		return Each(ctx, d.db, scan, query, args...)
	})
}

// QueryPlanned is Query for a query whose best plan depends on its values, such as how many rows a service has.
// PostgreSQL would make one plan for all values once a connection has run the query five times.
func (d *Database) QueryPlanned(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string,
	args ...any) error {
	return d.engine.Planned(ctx, d.db, func(s schema.Session) error {
		reset()
		return Each(ctx, s, scan, query, args...)
	})
}

// Each runs a query once, in s, and calls scan with each row.
func Each(ctx context.Context, s schema.Session, scan func(*sql.Rows) error, query string, args ...any) (err error) {
	rows, err := s.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Into returns what scans each row of one column into a list.
func Into[T any](list *[]T) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var value T
		err := rows.Scan(&value)
		*list = append(*list, value)
		return err
	}
}

// Microseconds bounds what the database says of a time: its clock may have jumped.
func Microseconds(n int64) time.Duration {
	const most = int64(100 * 366 * 24 * time.Hour / time.Microsecond) // which a Duration can still hold
	return time.Duration(max(-most, min(n, most))) * time.Microsecond
}

// Largest returns how many bytes a row, or the values of a statement, could have when the Database was opened. It is 0
// if the database names every limit in its errors.
func (d *Database) Largest() int { return d.largest }

// TooLarge reports whether err, of a statement whose values have size bytes, is a refusal for size.
func (d *Database) TooLarge(err error, size int) bool {
	return err != nil && d.engine.TooLarge(err, size, d.largest)
}

// Held reports whether ctx is inside a receiver's claim that keeps all other writers out of this database: a writer
// with this ctx would wait for itself.
func (d *Database) Held(ctx context.Context) bool {
	claim := chain.ClaimOf(ctx)
	return claim != nil && claim.Locks(d.db)
}

const (
	// maxReadable is the longest key, in bytes, that is stored as it is.
	maxReadable = 255
	// hashed begins every key that is stored as its hash, and none that is stored as it is.
	hashed = "sha256:"
)

// Column returns the form in which s stands in a column that is part of a key: at most 255 bytes of valid text. What a
// person can read stays as it is. Everything else becomes a hash. No two texts have the same form, since what looks
// like a hash is hashed too.
func Column(s string) string {
	if len(s) <= maxReadable && !strings.HasPrefix(s, hashed) && readable(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashed + hex.EncodeToString(sum[:])
}

// invisible are ranges of what a person cannot see: controls, separators, marks of direction, noncharacters, private
// use. They are fixed, not those of package unicode: with a later Unicode a key must stand in the column as it did.
var invisible = [][2]rune{
	{0x7f, 0xa0}, {0xad, 0xad}, {0x61c, 0x61c}, {0x180b, 0x180f}, {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f},
	{0x3000, 0x3000}, {0xe000, 0xf8ff}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xfff0, 0xffff}, {0x1fffe, 0x1ffff},
	{0xe0000, 0x10ffff},
}

func readable(s string) bool {
	for _, r := range s {
		if ' ' <= r && r < 0x7f { // as in nearly all keys
			continue
		}
		if r < ' ' || slices.ContainsFunc(invisible, func(from [2]rune) bool { return from[0] <= r && r <= from[1] }) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// Among returns the condition that a column of numbers has one of the values, which are at least one. On PostgreSQL
// they are one array, as text that every driver can bind. Elsewhere the last value is repeated until their number is a
// power of two: statements of few lengths are prepared once each.
func (d *Database) Among(column string, values []int64) (condition string, args []any) {
	if d.kind == Postgres {
		text := make([]byte, 0, 8*len(values)+2)
		for i, value := range values {
			text = append(text, map[bool]byte{true: '{', false: ','}[i == 0])
			text = strconv.AppendInt(text, value, 10)
		}
		return column + ` = ANY(?::text::bigint[])`, []any{string(append(text, '}'))}
	}
	args = make([]any, 1<<bits.Len(uint(len(values)-1)))
	for i := range args {
		args[i] = values[min(i, len(values)-1)]
	}
	return column + ` IN (?` + strings.Repeat(`,?`, len(args)-1) + `)`, args
}

// startTimeout bounds what Open asks of the database.
const startTimeout = 30 * time.Second

// Open is how a store begins: it asks db which database it is, verifies the name of the service, and brings the tables
// to their newest version, within 30 seconds. Errors begin with the name of the caller, such as "delay: NewStore". Open
// does not close db.
func Open(ctx context.Context, caller string, db *sql.DB, service string, tables ...schema.Table) (*Database, error) {
	if ctx == nil {
		return nil, errors.New(caller + ": the context is nil: give context.Background() if there is no other")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	on, err := Detect(ctx, db)
	if err == nil {
		err = ValidateService(on.kind, service)
	}
	if err == nil {
		err = on.Upgrade(ctx, tables...)
	}
	if err == nil {
		on.largest, err = on.engine.Largest(ctx, db)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", caller, err)
	}
	return on, nil
}

const maxService = 100

// ValidateService returns an error unless service can be the name under which a store on a database of this kind keeps
// what is its own. On a server a name is required. On SQLite, where a file is a service's own, it may be empty.
func ValidateService(kind Kind, service string) error {
	if service == "" && kind != SQLite {
		return errors.New(`the Service is empty: name the service, such as "shop". Several services may use this database ` +
			"server, and two of them with a handler of the same name would take each other's messages for their own")
	}
	if len(service) > maxService {
		return fmt.Errorf("the Service has %d bytes: give it a name of at most %d", len(service), maxService)
	}
	for _, r := range service {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return fmt.Errorf("the Service %q has the character %q: use letters a to z, digits, dots, underscores and hyphens",
				service, r)
		}
	}
	return nil
}

// OwnKeyError says that a database numbers new rows of a table of ours from a counter behind the rows: a restore
// of data alone, logical replication or a change of servers can leave it there. It is about us and about no message, so
// package outage holds the message.
type OwnKeyError struct {
	Table, Column string
	Remedy        string // a statement that sets the counter right
	err           error
}

func (e *OwnKeyError) Error() string {
	text := fmt.Sprintf("the sequence of %s.%s is behind the rows of the table: run %s", e.Table, e.Column, e.Remedy)
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *OwnKeyError) Unwrap() error { return e.err }

// OwnFault marks an error that is about a store, whatever code the database gave it.
func (*OwnKeyError) OwnFault() {}

// OwnKey returns err, of a statement that inserts rows into tables. If the number that the database gave to a row of
// one of them is taken, it returns an *OwnKeyError around err. The statement must not ignore conflicts of its primary
// keys: a conflict clause names another index, and on MySQL there is none, because none can name an index. MariaDB does
// not say of which table a key is: there it is the first one.
func (d *Database) OwnKey(err error, tables ...schema.Table) error {
	if err == nil {
		return nil
	}
	for _, t := range tables {
		if d.engine.PrimaryTaken(err, t) {
			return d.ownKey(t, err)
		}
	}
	return err
}

// OwnKeyBehind returns an *OwnKeyError if the counter of a table is behind its rows, for programs that look for such
// faults before a statement meets one. It returns nil if it may not look.
func (d *Database) OwnKeyBehind(ctx context.Context, t schema.Table) error {
	behind, err := d.engine.Behind(ctx, d.db, t)
	switch {
	case err != nil && d.engine.MayNot(err):
		return nil
	case err != nil:
		return fmt.Errorf("ask for the sequence of %s: %w", t.Name, err)
	case behind:
		return d.ownKey(t, nil)
	}
	return nil
}

func (d *Database) ownKey(t schema.Table, err error) error {
	return &OwnKeyError{Table: t.Name, Column: t.Key[0], Remedy: d.engine.Renumber(t), err: err}
}

// IsTaken reports whether err says that a row with the same unique key is there, for a statement of MySQL that has no
// conflict clause. Ask OwnKey first.
func (d *Database) IsTaken(err error) bool { return d.engine.Taken(err) }
