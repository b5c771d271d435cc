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

type statements struct{ clock, get, put, remove, due string }

func statementsFor(db *database.Database) statements {
	const key = ` WHERE service = ? AND kind = ? AND subject = ?`
	conflict, is := ` ON CONFLICT (service, kind, subject) DO UPDATE SET `, `excluded.%[1]s`
	if db.Kind() == database.MySQL {
		conflict, is = ` ON DUPLICATE KEY UPDATE `, `VALUES(%[1]s)`
	}
	put := `INSERT INTO spillway_notices (service, kind, subject, ` + strings.Join(columns, ", ") +
		`) VALUES (?, ?, ?` + strings.Repeat(", ?", len(columns)) + `)` + conflict
	for i, column := range columns {
		if i > 0 {
			put += ", "
		}
		put += fmt.Sprintf(`%[1]s = `+is, column)
	}
	return statements{
		clock:  db.Statement(`SELECT now_us()`),
		get:    db.Statement(`SELECT ` + strings.Join(columns, ", ") + ` FROM spillway_notices` + key),
		put:    db.Statement(put),
		remove: db.Statement(`DELETE FROM spillway_notices` + key),
		due: db.Statement(`SELECT kind, subject FROM spillway_notices
WHERE service = ? AND (telling <> '' AND (leased_until <= now_us() OR leased_until > now_us() + ?) OR telling = '' AND ends_at <= now_us()
	OR ends_at < ? AND opened_at > now_us()) ORDER BY ends_at LIMIT ?`),
	}
}

// alone writes the entry under the key .lock first: the writers of a service wait for each other there. Notices are
// few.
func (t *table) alone(ctx context.Context, work func(transaction, int64) error) error {
	err := t.db.Write(ctx, func(tx *sql.Tx) error {
		w := &within{t, ctx, tx}
		if err := w.put(Key{Kind: ".lock"}, &entry{ends: math.MaxInt64}); err != nil {
			return err
		}
		var now int64
		if err := tx.QueryRowContext(ctx, t.statements.clock).Scan(&now); err != nil {
			return err
		}
		return work(w, now)
	})
	if err != nil {
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

// within is a transaction on the table.
type within struct {
	table *table
	ctx   context.Context
	tx    *sql.Tx
}

func (w *within) key(key Key) []any {
	return []any{w.table.service, w.table.db.Text(key.Kind), w.table.db.Text(stored(key.Subject))}
}

func (w *within) get(key Key) (*entry, error) {
	e, step := &entry{}, ""
	err := w.tx.QueryRowContext(w.ctx, w.table.statements.get, w.key(key)...).Scan(&e.opened, &e.ends, &e.total,
		&e.untold, &e.first, &e.last, &e.about, &step, &e.said, &e.number, &e.holder, &e.leased, &e.tries)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	e.telling = Step(step)
	return e, err
}

func (w *within) put(key Key, e *entry) error {
	text := w.table.db.Text
	_, err := w.tx.ExecContext(w.ctx, w.table.statements.put, append(w.key(key), e.opened, e.ends, e.total, e.untold,
		e.first, e.last, text(e.about), text(string(e.telling)), e.said, e.number, text(e.holder), e.leased, e.tries)...)
	return err
}

func (w *within) remove(key Key) error {
	_, err := w.tx.ExecContext(w.ctx, w.table.statements.remove, w.key(key)...)
	return err
}
