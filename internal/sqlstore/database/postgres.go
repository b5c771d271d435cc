package database

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/rerun"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// inPostgres is what PostgreSQL does in its own way.
type inPostgres struct{}

// The clocks. now_ms() is the time of evaluation, so a statement that waited for a lock sees the time after its wait.
// now_us() is the time at which the statement came in: a clock that may change from row to row could not be looked up
// in an index, and the transaction's own time may be of long ago.
const (
	nowMS = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`
	nowUS = `(extract(epoch FROM statement_timestamp()) * 1000000)::bigint`
)

var postgresClock = strings.NewReplacer("now_ms()", nowMS, "now_us()", nowUS)

// Statement spells the clocks, and turns question marks into $1, $2 and so on.
func (inPostgres) Statement(text string) string { return numbered(postgresClock.Replace(text)) }

// Text binds text for a text column. It must be valid UTF-8 without NUL.
func (inPostgres) Text(s string) any { return s }

// Bytes binds any bytes for a bytea column: a text may not hold NUL, nor what is not UTF-8.
func (inPostgres) Bytes(s string) any { return []byte(s) }

// SkipLocked passes over the rows that others have locked.
func (inPostgres) SkipLocked() string { return ` FOR UPDATE SKIP LOCKED` }

// Write runs work in a transaction, and again if the server ended the transaction because of another one.
func (inPostgres) Write(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	return rerun.Write(ctx, db, postgres.Undone, work)
}

// Again runs one statement, and again if the server undid it because of others.
func (inPostgres) Again(ctx context.Context, _ *sql.DB, statement func() error) error {
	return rerun.Statement(ctx, postgres.Undone, statement)
}

// Read runs read once: readers wait for no one.
func (inPostgres) Read(_ context.Context, read func() error) error { return read() }

// customPlans is of the transaction alone. PostgreSQL 11 has no such setting.
const customPlans = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true) WHERE current_setting('plan_cache_mode', true) IS NOT NULL`

// Planned runs read in a transaction in which each query is planned for its values.
func (inPostgres) Planned(ctx context.Context, db *sql.DB, read func(schema.Session) error) error {
	return rerun.Transaction(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true},
		func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, customPlans); err != nil {
				return err
			}
			return read(tx)
		})
}

// Largest returns 0: no limit can be reached that the server does not name in its error.
func (inPostgres) Largest(context.Context, *sql.DB) (int, error) { return 0, nil }

// TooLarge reports whether a value had more than 1 GB.
func (inPostgres) TooLarge(err error, _, _ int) bool {
	return postgres.State(err) == postgres.ProgramLimitExceeded
}

// MayNot reports whether the role has no right to do it, or the session may only read.
func (inPostgres) MayNot(err error) bool {
	state := postgres.State(err)
	return state == "42501" || state == "25006"
}

// IsThere returns false: the files say IF NOT EXISTS, and an error ends the transaction.
func (inPostgres) IsThere(error) bool { return false }

// Taken reports whether a row with the same unique key is there.
func (inPostgres) Taken(err error) bool { return postgres.State(err) == postgres.UniqueViolation }

// PrimaryTaken reports whether a row with the same primary key is there. The error names the constraint, in each of the
// server's languages.
func (e inPostgres) PrimaryTaken(err error, t schema.Table) bool {
	return e.Taken(err) && strings.Contains(err.Error(), t.Name+"_pkey")
}

// Behind compares the sequence of the key's first column with the rows.
func (inPostgres) Behind(ctx context.Context, s schema.Session, t schema.Table) (behind bool, err error) {
	var sequence sql.NullString
	err = Each(ctx, s, func(rows *sql.Rows) error { return rows.Scan(&sequence) },
		`SELECT pg_get_serial_sequence('`+t.Name+`', '`+t.Key[0]+`')`)
	if err == nil && sequence.Valid {
		err = Each(ctx, s, func(rows *sql.Rows) error { return rows.Scan(&behind) }, `SELECT COALESCE((SELECT MAX(`+t.Key[0]+`) FROM `+t.Name+`) >
(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM `+sequence.String+`), false)`)
	}
	return behind, err
}

// Renumber lets the sequence go on behind the rows.
func (inPostgres) Renumber(t schema.Table) string {
	return fmt.Sprintf(`SELECT setval(pg_get_serial_sequence('%s', '%s'), (SELECT MAX(%[2]s) FROM %[1]s))`, t.Name, t.Key[0])
}

// numbered turns the question marks of a statement into $1, $2 and so on. It may have no others.
func numbered(statement string) string {
	parts := strings.Split(statement, "?")
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// Require refuses a database that cannot hold every readable text, and connections that would change a text on the way.
func (inPostgres) Require(ctx context.Context, db *sql.DB) error {
	var encoding, client string
	err := db.QueryRowContext(ctx,
		`SELECT current_setting('server_encoding'), current_setting('client_encoding')`).Scan(&encoding, &client)
	switch {
	case err != nil:
		return fmt.Errorf("ask for the database's encoding: %w", err)
	case encoding != "UTF8":
		return fmt.Errorf("the database's encoding is %s, which has no room for some texts: make a database with UTF8",
			encoding)
	case client != "UTF8":
		return fmt.Errorf("the connections' client_encoding is %s, which changes texts on the way: leave it at UTF8",
			client)
	}
	return nil
}

// Describe returns the table that a statement with this name would use. Place is its schema, quoted. A table that is
// not permanent would be empty after a crash.
func (inPostgres) Describe(ctx context.Context, s schema.Session, t schema.Table) (f schema.Found, err error) {
	permanent := true
	err = Each(ctx, s, func(rows *sql.Rows) error {
		var name string
		var inKey bool
		if err := rows.Scan(&name, &inKey, &permanent, &f.Place); err != nil {
			return err
		}
		f.Exists = true
		f.Columns = append(f.Columns, name)
		if inKey {
			f.Key = append(f.Key, name)
		}
		return nil
	}, `
SELECT a.attname, k.position IS NOT NULL, c.relpersistence = 'p', c.relnamespace::regnamespace::text
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
LEFT JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, position) ON k.attnum = a.attnum AND k.position <= i.indnkeyatts
WHERE c.oid = to_regclass($1)
ORDER BY k.position NULLS LAST, a.attnum`, t.Name)
	if !permanent {
		f.Unfit = fmt.Errorf("table %q is temporary or unlogged: it would be empty after a crash; make it a permanent one",
			t.Name)
	}
	return f, err
}

// Recorded reads the versions from the spillway_schema beside the table. If there is no table, it reads them where the
// table would be made.
func (inPostgres) Recorded(ctx context.Context, s schema.Session, f schema.Found,
	component string) (versions []int, err error) {
	var table sql.NullString
	err = Each(ctx, s, func(rows *sql.Rows) error { return rows.Scan(&table) },
		`SELECT to_regclass(COALESCE(NULLIF($1, ''), quote_ident(current_schema())) || '.spillway_schema')::text`,
		f.Place)
	if err != nil || !table.Valid {
		return nil, err
	}
	err = Each(ctx, s, Into(&versions), `SELECT version FROM `+table.String+` WHERE component = $1`, component)
	return versions, err
}

// creating is the number of the lock that every maker of tables holds. CREATE TABLE IF NOT EXISTS alone looks first and
// creates then, so that of two at once one fails with a duplicate key in the catalog. The number is "spillway" in
// ASCII.
const creating = 0x7370696c6c776179

// Alone runs work in one transaction while no other process makes or upgrades tables. A table that is there is upgraded
// in its own schema: otherwise one further along the search path would get an empty twin in the first schema.
func (e inPostgres) Alone(ctx context.Context, db *sql.DB, t schema.Table, work func(schema.Session) error) error {
	return e.Write(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(creating)); err != nil {
			return fmt.Errorf("wait for others that upgrade: %w", err)
		}
		f, err := e.Describe(ctx, tx, t)
		if err == nil && f.Exists {
			_, err = tx.ExecContext(ctx, `SELECT set_config('search_path', $1, true)`, f.Place)
		}
		if err != nil {
			return fmt.Errorf("find the schema of table %q: %w", t.Name, err)
		}
		return work(tx)
	})
}

const (
	// rounds is how many questions two connections ask, the first one twice. Other processes can take the shared session
	// in between, and in turn.
	rounds = 5
	// secondTimeout bounds the wait for a second connection.
	secondTimeout = 5 * time.Second
)

// requireSessions returns an error if db prepares statements, and its connections have no session of their own: a
// pooler in transaction mode is between. Two connections that ask the same question in turn then share a session. If
// the pool has no second connection to spare, it asks nothing.
func requireSessions(ctx context.Context, db *sql.DB) error {
	if s := db.Stats(); s.MaxOpenConnections > 0 && s.MaxOpenConnections < s.InUse+2 {
		return nil
	}
	first, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("take a connection: %w", err)
	}
	defer func() { _ = first.Close() }()
	within, cancel := context.WithTimeout(ctx, secondTimeout)
	defer cancel()
	second, err := db.Conn(within)
	if err != nil {
		return ctx.Err()
	}
	defer func() { _ = second.Close() }()
	for round := range rounds {
		question := fmt.Sprintf(`SELECT $1::int + %d`, round) // each is prepared anew
		for _, conn := range []*sql.Conn{first, first, second} {
			var answer any
			if err := conn.QueryRowContext(ctx, question, round).Scan(&answer); err != nil {
				return postgres.WithRemedy(fmt.Errorf("ask whether connections share sessions: %w", err))
			}
		}
	}
	return nil
}
