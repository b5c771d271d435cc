// Package keytable is the table in which idempotent receivers keep what was applied. It is the same for both owners of
// a transaction, the receiver's own store or a subscriber whose transaction it joins, so that a message which comes one
// way is recognised when it comes the other.
package keytable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Dialect is how one database enters, finds and records keys. It is the same for a store, which has a transaction of
// its own, and for a subscriber whose transaction is joined.
type Dialect struct {
	// enter inserts a row: consumer, id, applied_at, fingerprint, version, nonce. Where the key is there it changes
	// nothing, or is a duplicate.
	enter     string
	duplicate func(error) bool
	// upsert is enter for a key with a version: it also takes a key that is applied with a lower one. Where there is no
	// such statement, advance does that after enter: applied_at, fingerprint, version, nonce, consumer, id, version.
	upsert, advance string
	// find reads outputs, fingerprint, version, and whether no lease is on the key: consumer, id.
	find string
	// takeOver takes a key whose lease is over: applied_at, fingerprint, version, nonce, consumer, id.
	takeOver string
	// takeFurther is takeOver for a delivery in a sequence, which a key that was settled further on absorbs: the same,
	// and source, position, redrives.
	takeFurther string
	// settle inserts a key that is settled without an effect: consumer, id, applied_at, fingerprint, nonce, source,
	// position, redrives. Where the key is there it changes nothing, or is a duplicate.
	settle string
	// settleOn settles a key that is not applied, and not leased: applied_at, fingerprint, source, position, redrives,
	// consumer, id.
	settleOn string
	// absorbs counts a key that absorbs a delivery: consumer, id, source, position, redrives.
	absorbs string
	// record records outputs: outputs, consumer, id.
	record string
	// entered counts a key that a certain transaction entered: consumer, id, nonce.
	entered string
	// published forgets the outputs of an applied key: consumer, id, version. In PostgreSQL it does not wait for who is
	// about to apply a higher version, which has outputs of its own.
	published string
	// bytes says that text goes as bytes, so that no character set of the connection touches it.
	bytes bool
}

// DialectOf returns the dialect of a kind of database.
func DialectOf(kind database.Kind) *Dialect {
	return map[database.Kind]*Dialect{database.Postgres: &InPostgres, database.MySQL: &InMySQL,
		database.SQLite: &InSQLite}[kind]
}

// statement writes a text in a database's own SQL. The clock is the database's, so that the clocks of processes do not
// matter to leases.
func statement(kind database.Kind, text string) string { return database.Of(kind, nil).Statement(text) }

// leaseOver is true of a row whose lease has expired. One that began in the future, by more than a second, is over too:
// the clock was set back, and to wait for it might take as long as it was wrong.
const leaseOver = `expires_at IS NOT NULL AND (expires_at <= now_ms() OR applied_at > now_ms() + 1000)`

// InPostgres, InMySQL (MariaDB too) and InSQLite are the dialects.
var (
	InPostgres = Dialect{enter: enterOnce, upsert: enterHigher, settle: settle + ` ON CONFLICT DO NOTHING`,
		published: `UPDATE spillway_keys SET outputs = NULL WHERE ctid IN (SELECT ctid FROM spillway_keys
WHERE consumer = ? AND id = ? AND version IS NOT DISTINCT FROM ?::bigint AND outputs IS NOT NULL AND expires_at IS NULL FOR UPDATE SKIP LOCKED)`,
	}.in(database.Postgres)
	InMySQL = Dialect{enter: enter, bytes: true, settle: settle,
		duplicate: func(err error) bool { return mysql.Number(err) == mysql.Duplicate },
		advance: `UPDATE spillway_keys SET applied_at = ?, fingerprint = ?, version = ?, nonce = ?, outputs = NULL
WHERE consumer = ? AND id = ? AND expires_at IS NULL AND (version IS NULL OR version < ?)`,
		published: `UPDATE spillway_keys SET outputs = NULL WHERE consumer = ? AND id = ? AND version <=> ? AND outputs IS NOT NULL AND expires_at IS NULL`,
	}.in(database.MySQL)
	InSQLite = Dialect{enter: enterOnce, upsert: enterHigher, settle: settle + ` ON CONFLICT DO NOTHING`,
		published: `UPDATE spillway_keys SET outputs = NULL WHERE consumer = ? AND id = ? AND version IS ? AND outputs IS NOT NULL AND expires_at IS NULL`,
	}.in(database.SQLite)
)

const (
	enter = `INSERT INTO spillway_keys (consumer, id, applied_at, fingerprint, version, nonce) VALUES (?, ?, ?, ?, ?, ?)`

	settle = `INSERT INTO spillway_keys (consumer, id, applied_at, fingerprint, nonce, settled_source, settled_position, settled_redrives, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)`

	enterOnce   = enter + ` ON CONFLICT DO NOTHING`
	enterHigher = `INSERT INTO spillway_keys AS k (consumer, id, applied_at, fingerprint, version, nonce) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (consumer, id) DO UPDATE SET applied_at = EXCLUDED.applied_at, fingerprint = EXCLUDED.fingerprint, version = EXCLUDED.version, nonce = EXCLUDED.nonce, outputs = NULL
WHERE k.expires_at IS NULL AND (k.version IS NULL OR k.version < EXCLUDED.version)`
)

// in completes the dialect of a kind of database with the statements that all have.
func (d Dialect) in(kind database.Kind) Dialect {
	const key = `WHERE consumer = ? AND id = ?`
	d.find = `SELECT outputs, fingerprint, version, expires_at IS NULL FROM spillway_keys ` + key
	d.takeOver = `UPDATE spillway_keys SET applied_at = ?, fingerprint = ?, version = ?, nonce = ?, outputs = NULL, expires_at = NULL
` + key + ` AND ` + leaseOver
	d.takeFurther = d.takeOver + ` AND (settled_source IS NULL OR settled_source <> ? OR settled_position < ? OR settled_redrives < ?)`
	d.settleOn = `UPDATE spillway_keys SET applied_at = ?, fingerprint = ?, version = NULL, outputs = NULL, expires_at = 0,
settled_source = ?, settled_position = ?, settled_redrives = ? ` + key + ` AND ` + leaseOver
	d.absorbs = `SELECT count(*) FROM spillway_keys ` + key + ` AND expires_at = 0 AND settled_source = ? AND settled_position >= ?
AND settled_redrives >= ?`
	d.record = `UPDATE spillway_keys SET outputs = ? ` + key
	d.entered = `SELECT count(*) FROM spillway_keys ` + key + ` AND nonce = ?`
	for _, text := range []*string{&d.enter, &d.upsert, &d.advance, &d.find, &d.takeOver, &d.takeFurther,
		&d.settle, &d.settleOn, &d.absorbs, &d.record, &d.entered,
		&d.published} {
		*text = statement(kind, *text)
	}
	return d
}

// Table is the table of keys.
var Table = schema.Table{
	Component: "keys", Name: "spillway_keys", Key: []string{"consumer", "id"},
	Versions: []schema.Version{
		{File: "0002_keys.sql", Columns: []string{"consumer", "id", "outputs", "applied_at", "fingerprint", "version",
			"fence", "expires_at", "nonce", "settled_source", "settled_position", "settled_redrives"}},
	},
}

// Parked is the table of package sequence. A purge of keys knows it: the keys of parked messages stay.
var Parked = schema.Table{Component: "parked", Name: "spillway_parked", Key: []string{"seq"},
	Versions: []schema.Version{{
		File: "0003_parked.sql",
		Columns: []string{"seq", "service", "members", "topic", "part", "source", "lane", "position", "fingerprint",
			"redrives", "due_at", "held", "sent_at", "consumer", "key_id", "record_key", "id", "metadata", "payload",
			"bytes", "decision", "decided_at", "decided_by", "decided_why"},
	}}}

// EnterMySQL is Dialect.Enter. Its first statement carries its values in its text, so that a driver sends it without
// preparing it. A duplicate's row is committed, and READ COMMITTED lets the next statement see it.
func EnterMySQL(ctx context.Context, tx Querier, row Row) (record *Record, err error) {
	_, err = tx.ExecContext(ctx, enterMySQL(row))
	if !InMySQL.duplicate(err) {
		return nil, err
	}
	if !row.Versioned {
		record, err = InMySQL.Resolve(ctx, tx, row)
		if !errors.Is(err, sql.ErrNoRows) { // else it was purged in between
			return record, err
		}
	}
	return InMySQL.Enter(ctx, tx, row)
}

// enterMySQL quotes no value: numbers are digits, and everything else is hexadecimal digits of its bytes, which cannot
// end the literal and which no character set touches.
func enterMySQL(row Row) string {
	fingerprint, version := "NULL", "NULL"
	if row.Fingerprint != nil {
		fingerprint = fmt.Sprintf("x'%x'", row.Fingerprint)
	}
	if row.Versioned {
		version = strconv.FormatInt(row.Version, 10)
	}
	return fmt.Sprintf(`INSERT INTO spillway_keys (consumer, id, applied_at, fingerprint, version, nonce) VALUES (x'%x',x'%x',%d,%s,%s,%d)`,
		row.Consumer, row.ID, row.At, fingerprint, version, row.Nonce)
}

// With the key a claim in PostgreSQL notes in settings of its transaction which key it is, and under which role and
// search_path the table is found. The settings end with the transaction. So they prove, before the commit, that it is
// the one that entered the key; and a handler may set role and search_path.
const (
	notes = `set_config('spillway.role', current_setting('role'), true),
set_config('spillway.search_path', current_setting('search_path'), true)`
	noted = `current_setting('spillway.key', true) = ($1::bigint)::text`

	// NotePostgres notes role and search_path, and RestorePostgres sets them back. The notes end with the transaction: in
	// another one both become those of the session.
	NotePostgres    = `SELECT ` + notes
	RestorePostgres = `SELECT set_config('role', NULLIF(current_setting('spillway.role', true), ''), true),
set_config('search_path', NULLIF(current_setting('spillway.search_path', true), ''), true)`
)

var (
	enterNoted  = InPostgres.enter + ` RETURNING set_config('spillway.key', ($6::bigint)::text, true), ` + notes
	upsertNoted = InPostgres.upsert + ` RETURNING set_config('spillway.key', ($6::bigint)::text, true), ` + notes

	// RecordPostgres records outputs: outputs, consumer, id.
	RecordPostgres = InPostgres.record
)

// InsertPostgres returns the statement that enters the row, and its arguments. It changes nothing where the key is there
// with the same version or a higher one.
func InsertPostgres(row Row) (text string, args []any) {
	text = enterNoted
	if row.Versioned {
		text = upsertNoted
	}
	return text, []any{row.Consumer, row.ID, row.At, row.Fingerprint, row.version(), row.Nonce}
}

// EnterPostgres is Dialect.Enter, with the notes.
func EnterPostgres(ctx context.Context, tx Querier, row Row) (*Record, error) {
	text, args := InsertPostgres(row)
	entered, err := InPostgres.change(ctx, tx, text, args...)
	if err != nil || entered {
		return nil, err
	}
	record, err := InPostgres.Resolve(ctx, tx, row)
	if errors.Is(err, sql.ErrNoRows) { // it was purged in between
		record, err = InPostgres.Enter(ctx, tx, row)
	}
	if err == nil && record == nil {
		_, err = tx.ExecContext(ctx, `SELECT set_config('spillway.key', ($1::bigint)::text, true), `+notes, row.Nonce)
	}
	return record, err
}

// ProvePostgres reports whether the transaction is the one that entered the row. If restore is set, it sets role and
// search_path back.
func ProvePostgres(ctx context.Context, tx Querier, row Row, restore bool) (bool, error) {
	text := `SELECT 1 WHERE ` + noted
	if restore {
		text = RestorePostgres + ` WHERE ` + noted
	}
	return InPostgres.change(ctx, tx, text, row.Nonce)
}
