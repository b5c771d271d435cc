package keytable

import (
	"context"
	"database/sql"
	"errors"
)

// With the key a claim in PostgreSQL notes in settings of its transaction which key it is, and under which role and
// search_path the table is found. The settings end with the transaction. So they prove, before the commit, that it is
// the one that entered the key; and a handler may set role and search_path.
const (
	notes = `set_config('spillway.role', current_setting('role'), true),
set_config('spillway.search_path', current_setting('search_path'), true)`
	noted = `current_setting('spillway.key', true) = ($1::bigint)::text`

	// RestorePostgres sets role and search_path back.
	RestorePostgres = `SELECT set_config('role', current_setting('spillway.role'), true),
set_config('search_path', current_setting('spillway.search_path'), true)`
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
