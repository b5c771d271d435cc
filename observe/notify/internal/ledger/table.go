package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// noticesTable is the table that the instances of a service share.
var noticesTable = schema.Table{
	Component: "notices", Name: "spillway_notices", Key: []string{"service", "kind", "subject"},
	Versions: []schema.Version{{File: "0009_notices.sql",
		Columns: append([]string{"service", "kind", "subject"}, columns...)}},
}

// columns are those of an entry, in the order in which they are read and written.
var columns = []string{"opened_at", "ends_at", "total", "untold", "first_at", "last_at", "about", "telling", "said",
	"number", "holder", "leased_until", "tries"}

// InTable returns a Ledger that the instances of a service share in db: SQLite, PostgreSQL, MySQL or MariaDB. It makes
// the table spillway_notices if that is missing.
func InTable(ctx context.Context, db *sql.DB, service, holder string, rules Rules) (*Ledger, error) {
	on, err := database.Open(ctx, "notify: Watch", db, service, noticesTable)
	if err != nil {
		return nil, err
	}
	return &Ledger{&table{db: on, service: on.Text(service), statements: statementsFor(on)}, rules, holder}, nil
}

type table struct {
	db         *database.Database
	service    any // as it is bound
	statements statements
}

type statements struct{ clock, get, make, add, put, remove, due, renew string }

func statementsFor(db *database.Database) statements {
	const key = ` WHERE service = ? AND kind = ? AND subject = ?`
	lock := strings.TrimSuffix(db.SkipLocked(), " SKIP LOCKED")
	insert := `INSERT INTO spillway_notices (service, kind, subject, ` + strings.Join(columns, ", ") +
		`) VALUES (?, ?, ?` + strings.Repeat(", ?", len(columns)) + `)`
	unless := ` ON CONFLICT (service, kind, subject) DO NOTHING`
	// which waits for the row, and locks it: IGNORE would share it, and two of them wait for each other
	if db.Kind() == database.MySQL {
		unless = ` ON DUPLICATE KEY UPDATE tries = tries`
	}
	return statements{
		clock:  db.Statement(`SELECT now_us()`),
		get:    db.Statement(`SELECT ` + strings.Join(columns, ", ") + `, now_us() FROM spillway_notices` + key + lock),
		make:   db.Statement(insert + unless),
		add:    db.Statement(insert),
		put:    db.Statement(`UPDATE spillway_notices SET ` + strings.Join(columns, " = ?, ") + ` = ?` + key),
		remove: db.Statement(`DELETE FROM spillway_notices` + key),
		due: db.Statement(`SELECT kind, subject FROM spillway_notices
WHERE service = ? AND (telling <> '' AND (leased_until <= now_us() OR leased_until > now_us() + ?) OR telling = '' AND ends_at <= now_us()
	OR ends_at < ? AND opened_at > now_us()) ORDER BY ends_at LIMIT ?`),
		// and some keys
		renew: `UPDATE spillway_notices SET leased_until = now_us() + ? WHERE service = ? AND holder = ? AND telling <> ''`,
	}
}

func (t *table) alone(ctx context.Context, work func(transaction) error) error {
	if err := t.db.Write(ctx, func(tx *sql.Tx) error { return work(&within{t, ctx, tx}) }); err != nil {
		return fmt.Errorf("the table of notices: %w", err)
	}
	return nil
}

func (t *table) due(ctx context.Context, lease time.Duration, limit int) (keys []Key, err error) {
	err = t.db.Query(ctx, func() { keys = nil }, func(rows *sql.Rows) error {
		var key Key
		err := rows.Scan(&key.Kind, &key.Subject)
		keys = append(keys, key)
		return err
	}, t.statements.due, t.service, 2*lease.Microseconds(), int64(math.MaxInt64), limit)
	if err != nil {
		return nil, fmt.Errorf("the table of notices: %w", err)
	}
	return keys, nil
}

func (t *table) renew(ctx context.Context, holder string, lease time.Duration, keys []Key) error {
	statement, args := t.statements.renew, []any{lease.Microseconds(), t.service, t.db.Text(holder)}
	for _, key := range keys {
		args = append(args, t.db.Text(key.Kind), t.db.Text(stored(key.Subject)))
	}
	statement += ` AND (kind = ? AND subject = ?` + strings.Repeat(` OR kind = ? AND subject = ?`, len(keys)-1) + `)`
	if _, err := t.db.Exec(ctx, t.db.Statement(statement), args...); err != nil {
		return fmt.Errorf("the table of notices: %w", err)
	}
	return nil
}

// within is a transaction on the table.
type within struct {
	table *table
	ctx   context.Context
	tx    *sql.Tx
}

func (w *within) key(key Key) []any {
	return []any{w.table.service, w.table.db.Text(key.Kind), w.table.db.Text(stored(key.Subject))}
}

// get locks the row, if there is one.
func (w *within) get(key Key) (*entry, int64, error) {
	e, now := &entry{}, int64(0)
	var step string
	err := w.tx.QueryRowContext(w.ctx, w.table.statements.get, w.key(key)...).Scan(&e.opened, &e.ends, &e.total,
		&e.untold,
		&e.first, &e.last, &e.about, &step, &e.said, &e.number, &e.holder, &e.leased, &e.tries, &now)
	if errors.Is(err, sql.ErrNoRows) {
		err = w.tx.QueryRowContext(w.ctx, w.table.statements.clock).Scan(&now)
		return nil, now, err
	}
	e.telling = Step(step)
	return e, now, err
}

func (w *within) make(key Key) (*entry, int64, error) {
	if _, err := w.tx.ExecContext(w.ctx, w.table.statements.make,
		append(w.key(key), w.values(&entry{})...)...); err != nil {
		return nil, 0, err
	}
	e, now, err := w.get(key)
	if err == nil && e == nil {
		err = errors.New("a row is gone that was made just now")
	}
	return e, now, err
}

func (w *within) add(key Key, e *entry) error {
	_, err := w.tx.ExecContext(w.ctx, w.table.statements.add, append(w.key(key), w.values(e)...)...)
	return err
}

func (w *within) put(key Key, e *entry) error {
	_, err := w.tx.ExecContext(w.ctx, w.table.statements.put, append(w.values(e), w.key(key)...)...)
	return err
}

func (w *within) remove(key Key) error {
	_, err := w.tx.ExecContext(w.ctx, w.table.statements.remove, w.key(key)...)
	return err
}

func (w *within) values(e *entry) []any {
	return []any{e.opened, e.ends, e.total, e.untold, e.first, e.last, w.table.db.Text(e.about),
		w.table.db.Text(string(e.telling)), e.said, e.number, w.table.db.Text(e.holder), e.leased, e.tries}
}
