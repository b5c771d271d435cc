// Package postgres knows what is particular to PostgreSQL: its SQL, its catalog, and what its errors mean. Any
// database/sql driver will do whose errors have a method SQLState, as those of pgx and lib/pq have.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/rerun"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Engine is what PostgreSQL does in its own way. See the interface in package database.
type Engine struct{}

// The clocks. now_ms() is the time of evaluation, so a statement that waited for a lock sees the time after its wait.
// now_us() is the time at which the statement came in: a clock that may change from row to row could not be looked up
// in an index, and the transaction's own time may be of long ago.
const (
	nowMS = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`
	nowUS = `(extract(epoch FROM statement_timestamp()) * 1000000)::bigint`
)

var clock = strings.NewReplacer("now_ms()", nowMS, "now_us()", nowUS)

// Statement spells the clocks, and turns question marks into $1, $2 and so on.
func (Engine) Statement(text string) string { return numbered(clock.Replace(text)) }

// Text binds text for a text column. It must be valid UTF-8 without NUL.
func (Engine) Text(s string) any { return s }

// Bytes binds any bytes for a bytea column: a text may not hold NUL, nor what is not UTF-8.
func (Engine) Bytes(s string) any { return []byte(s) }

// SkipLocked passes over the rows that others have locked.
func (Engine) SkipLocked() string { return ` FOR UPDATE SKIP LOCKED` }

// Write runs work in a transaction, and again if the server ended the transaction because of another one.
func (Engine) Write(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	return rerun.Write(ctx, db, Undone, work)
}

// Again runs one statement, and again if the server undid it because of others.
func (Engine) Again(ctx context.Context, _ *sql.DB, statement func() error) error {
	return rerun.Statement(ctx, Undone, statement)
}

// Read runs read once: readers wait for no one.
func (Engine) Read(_ context.Context, read func() error) error { return read() }

// customPlans is of the transaction alone. PostgreSQL 11 has no such setting.
const customPlans = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true) WHERE current_setting('plan_cache_mode', true) IS NOT NULL`

// Planned runs read in a transaction in which each query is planned for its values.
func (Engine) Planned(ctx context.Context, db *sql.DB, read func(schema.Session) error) error {
	return rerun.Transaction(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true},
		func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, customPlans); err != nil {
				return err
			}
			return read(tx)
		})
}

// Largest returns 0: no limit can be reached that the server does not name in its error.
func (Engine) Largest(context.Context, *sql.DB) (int, error) { return 0, nil }

// TooLarge reports whether a value had more than 1 GB.
func (Engine) TooLarge(err error, _, _ int) bool { return State(err) == programLimitExceeded }

// MayNot reports whether the role has no right to do it, or the session may only read.
func (Engine) MayNot(err error) bool {
	state := State(err)
	return state == "42501" || state == "25006"
}

// IsThere returns false: the files say IF NOT EXISTS, and an error ends the transaction.
func (Engine) IsThere(error) bool { return false }

// Taken reports whether a row with the same unique key is there.
func (Engine) Taken(err error) bool { return State(err) == uniqueViolation }

// PrimaryTaken reports whether a row with the same primary key is there. The error names the constraint, in each of the
// server's languages.
func (e Engine) PrimaryTaken(err error, t schema.Table) bool {
	return e.Taken(err) && strings.Contains(err.Error(), t.Name+"_pkey")
}

// Behind compares the sequence of the key's first column with the rows.
func (Engine) Behind(ctx context.Context, s schema.Session, t schema.Table) (behind bool, err error) {
	var sequence sql.NullString
	err = one(ctx, s, `SELECT pg_get_serial_sequence('`+t.Name+`', '`+t.Key[0]+`')`, &sequence)
	if err == nil && sequence.Valid {
		err = one(ctx, s, `SELECT COALESCE((SELECT MAX(`+t.Key[0]+`) FROM `+t.Name+`) >
(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM `+sequence.String+`), false)`, &behind)
	}
	return behind, err
}

func one(ctx context.Context, s schema.Session, query string, to any) error {
	rows, err := s.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if rows.Next() {
		err = rows.Scan(to)
	}
	return errors.Join(err, rows.Err())
}

// Renumber lets the sequence go on behind the rows.
func (Engine) Renumber(t schema.Table) string {
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

// The errors that a store acts on (PostgreSQL's Appendix A).
const (
	// NoTransaction says that a statement stood outside of a transaction.
	NoTransaction = "25P01"
	// FailedTransaction says that a statement before it failed, and that nothing of the transaction can commit.
	FailedTransaction = "25P02"
	// NotPrepared says that the session does not have a prepared statement, and DuplicatePrepared that it has the
	// statement already.
	NotPrepared       = "26000"
	DuplicatePrepared = "42P05"

	uniqueViolation      = "23505"
	programLimitExceeded = "54000"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
)

// State returns the SQLSTATE in err, or "".
func State(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// Undone reports whether the server ended the transaction because of another one.
func Undone(err error) bool {
	state := State(err)
	return state == deadlockDetected || state == serializationFailure
}

// Require refuses a database that cannot hold every readable text, and connections that would change a text on the way.
func (Engine) Require(ctx context.Context, db *sql.DB) error {
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
func (Engine) Describe(ctx context.Context, s schema.Session, t schema.Table) (f schema.Found, err error) {
	permanent := true
	err = each(ctx, s, func(rows *sql.Rows) error {
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
func (Engine) Recorded(ctx context.Context, s schema.Session, f schema.Found,
	component string) (versions []int, err error) {
	var table sql.NullString
	err = each(ctx, s, func(rows *sql.Rows) error { return rows.Scan(&table) },
		`SELECT to_regclass(COALESCE(NULLIF($1, ''), quote_ident(current_schema())) || '.spillway_schema')::text`,
		f.Place)
	if err != nil || !table.Valid {
		return nil, err
	}
	err = each(ctx, s, func(rows *sql.Rows) error {
		var version int
		err := rows.Scan(&version)
		versions = append(versions, version)
		return err
	}, `SELECT version FROM `+table.String+` WHERE component = $1`, component)
	return versions, err
}

// creating is the number of the lock that every maker of tables holds. CREATE TABLE IF NOT EXISTS alone looks first and
// creates then, so that of two at once one fails with a duplicate key in the catalog. The number is "spillway" in
// ASCII.
const creating = 0x7370696c6c776179

// Alone runs work in one transaction while no other process makes or upgrades tables. A table that is there is upgraded
// in its own schema: otherwise one further along the search path would get an empty twin in the first schema.
func (e Engine) Alone(ctx context.Context, db *sql.DB, t schema.Table, work func(schema.Session) error) error {
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

func each(ctx context.Context, s schema.Session, scan func(*sql.Rows) error, query string, args ...any) (err error) {
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

// PoolerRemedy is what to do about connections that lead to the sessions of others.
const PoolerRemedy = "a pooler between lets clients share sessions, and what one prepares another meets: add " +
	"default_query_exec_mode=exec, or cache_describe, to the address of the database (pgx), let the pooler keep " +
	"prepared statements (PgBouncer 1.21 and later: max_prepared_statements), or set it to session mode"

// Pooled reports whether an error comes of a pooler in transaction mode: what the driver prepared is in another
// session.
func Pooled(err error) bool {
	state := State(err)
	return state == DuplicatePrepared || state == NotPrepared
}

// WithRemedy adds the PoolerRemedy to an error that comes of a pooler.
func WithRemedy(err error) error {
	if Pooled(err) {
		return fmt.Errorf("%s: %w", PoolerRemedy, err)
	}
	return err
}

const (
	// rounds is how many questions two connections ask, the first one twice. Other processes can take the shared session
	// in between, and in turn.
	rounds = 5
	// secondTimeout bounds the wait for a second connection.
	secondTimeout = 5 * time.Second
)

// RequireSessions returns an error if db prepares statements, and its connections have no session of their own: a
// pooler in transaction mode is between. Two connections that ask the same question in turn then share a session. If
// the pool has no second connection to spare, it asks nothing.
func RequireSessions(ctx context.Context, db *sql.DB) error {
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
				return WithRemedy(fmt.Errorf("ask whether connections share sessions: %w", err))
			}
		}
	}
	return nil
}
