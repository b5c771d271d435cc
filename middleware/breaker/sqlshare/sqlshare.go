// Package sqlshare has a breaker.Store on a database: with it the instances of a service share outages and freezes.
//
//	store, err := sqlshare.NewStore(ctx, db, "shop")
//	outages, err := breaker.New(breaker.Config{Store: store})
package sqlshare

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// Store shares outages and freezes among the instances of a service, in the table spillway_outages of a database. A
// command line uses it too: see Freeze, Release and List. It is safe for concurrent use.
type Store struct {
	db         *database.Database
	service    any // as it is bound
	statements statements
	swept      atomic.Int64 // when old rows were last removed, in Unix seconds
}

var table = schema.Table{
	Component: "outages", Name: "spillway_outages", Key: []string{"service", "handler", "scope", "instance"},
	Versions: []schema.Version{{
		File: "0008_outages.sql",
		Columns: []string{"service", "handler", "scope", "instance", "state", "reason", "cause", "actor", "since",
			"expires_at"},
	}},
}

// NewStore returns a Store on a PostgreSQL, MySQL, MariaDB or SQLite database: it asks db which one. It creates its
// table if that is missing, and waits for that for at most 30 seconds. The Store does not close db.
//
// The service names the processes that share their outages. It has at most 100 letters, digits, dots, underscores and
// hyphens. It is required on a database server. On SQLite it may be empty.
func NewStore(ctx context.Context, db *sql.DB, service string) (*Store, error) {
	on, err := database.Open(ctx, "sqlshare: NewStore", db, service, table)
	if err != nil {
		return nil, err
	}
	return &Store{db: on, service: on.Text(service), statements: statementsFor(on)}, nil
}

// List returns the outages and freezes of the service: each is Open or Frozen. Outages of instances that died are not
// among them.
func (s *Store) List(ctx context.Context) ([]circuit.Status, error) {
	rows, err := s.Rows(ctx, "")
	return slices.DeleteFunc(rows, func(row circuit.Status) bool { return row.State == circuit.Closed }), err
}

// Rows is List for an instance: see breaker.Store.
func (s *Store) Rows(ctx context.Context, instance string) ([]circuit.Status, error) {
	found := []circuit.Status{}
	err := s.db.Query(ctx, func() { found = found[:0] }, func(rows *sql.Rows) error {
		var one circuit.Status
		var since int64
		if err := rows.Scan(&one.Handler, &one.Scope, &one.Instance, &one.State, &one.Reason, &one.Cause, &one.Actor,
			&since); err != nil {
			return err
		}
		one.Since = time.UnixMilli(since)
		found = append(found, one)
		return nil
	}, s.statements.list, s.service, s.db.Text(instance))
	if err == nil && instance != "" {
		err = s.purge(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlshare: list the outages: %w", err)
	}
	return found, nil
}

// purge removes, now and then, what is long over.
func (s *Store) purge(ctx context.Context) error {
	now, swept := time.Now().Unix(), s.swept.Load()
	if now-swept < int64(keptFor.Seconds()) || !s.swept.CompareAndSwap(swept, now) {
		return nil
	}
	_, err := s.db.Exec(ctx, s.statements.purge, s.service, keptFor.Milliseconds())
	return err
}

// Takes reports whether a row can hold the names: each is readable and has at most 255 bytes.
func (s *Store) Takes(handler, scope string) bool {
	return database.Column(handler) == handler && database.Column(scope) == scope
}

// Put writes an outage: see breaker.Store.
func (s *Store) Put(ctx context.Context, outage circuit.Status) error {
	return s.put(ctx, outage, lease)
}

func (s *Store) put(ctx context.Context, row circuit.Status, expires time.Duration) error {
	_, err := s.db.Exec(ctx, s.statements.put, s.service, s.db.Text(row.Handler), s.db.Text(row.Scope),
		s.db.Text(row.Instance), s.db.Text(string(row.State)), s.db.Text(row.Reason), s.db.Text(row.Cause),
		s.db.Text(row.Actor), expires.Milliseconds())
	return err
}

// Renew shows that the instance of an outage lives: see breaker.Store.
func (s *Store) Renew(ctx context.Context, outage circuit.Status) error {
	_, err := s.db.Exec(ctx, s.statements.renew, s.db.Text(outage.Reason), s.db.Text(outage.Cause), lease.Milliseconds(),
		s.service, s.db.Text(outage.Handler), s.db.Text(outage.Scope), s.db.Text(outage.Instance))
	return err
}

// End removes an outage, or without an Instance those of all instances.
func (s *Store) End(ctx context.Context, outage circuit.Status) error {
	key := []any{s.service, s.db.Text(outage.Handler), s.db.Text(outage.Scope)}
	statement := s.statements.proved
	if outage.Instance != "" {
		statement, key = s.statements.remove, append(key, s.db.Text(outage.Instance))
	}
	_, err := s.db.Exec(ctx, statement, key...)
	return err
}

// Leave removes the outages of an instance that stops.
func (s *Store) Leave(ctx context.Context, instance string) error {
	_, err := s.db.Exec(ctx, s.statements.leave, s.service, s.db.Text(instance))
	return err
}

// Freeze holds the messages of a handler in all instances until Release is called, also in those that start later.
// Handler "" means all handlers. The reason and the actor are required, and stand in the log of each instance. It takes
// effect within seconds.
func (s *Store) Freeze(ctx context.Context, handler, reason, actor string) error {
	if reason == "" || actor == "" {
		return errors.New("sqlshare: Freeze: the reason or the actor is empty: say why the handler is frozen, and by whom")
	}
	if database.Column(handler) != handler {
		return fmt.Errorf("sqlshare: Freeze: the handler %q cannot be shared: a name has at most 255 bytes of readable text",
			boundedtext.Text(handler, 300))
	}
	if err := s.put(ctx, circuit.Status{Handler: handler, State: circuit.Frozen, Reason: boundedtext.Text(reason, 1000),
		Actor: boundedtext.Text(actor, 1000)}, 0); err != nil {
		return fmt.Errorf("sqlshare: freeze %q: %w", handler, err)
	}
	return nil
}

// Release ends the freeze of a handler that Freeze began, and reports whether there was one. The actor is required.
// Reason may be empty. Both stand in the log of each instance. A freeze of all handlers ends with the handler "" alone.
func (s *Store) Release(ctx context.Context, handler, reason, actor string) (released bool, err error) {
	if actor == "" {
		return false, errors.New("sqlshare: Release: the actor is empty: say who releases the handler")
	}
	reason = cmp.Or(reason, "released")
	n, err := s.db.Exec(ctx, s.statements.release, s.db.Text(boundedtext.Text(reason, 1000)),
		s.db.Text(boundedtext.Text(actor, 1000)), keptFor.Milliseconds(), s.service,
		s.db.Text(database.Column(handler)))
	if err != nil {
		return false, fmt.Errorf("sqlshare: release %q: %w", handler, err)
	}
	return n > 0, nil
}

// statements are what a store says to its database.
type statements struct{ list, put, renew, release, remove, proved, leave, purge string }

// lease is how long the outage of an instance counts after its last sign of life.
const lease = 15 * time.Second

// keptFor is how long a freeze that was released, and the outage of an instance that died, stay in the table.
const keptFor = time.Hour

func statementsFor(db *database.Database) statements {
	put := `INSERT INTO spillway_outages (service, handler, scope, instance, state, reason, cause, actor, since, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, now_ms(), now_ms() + ?)`
	if db.Kind() == database.MySQL {
		put += ` ON DUPLICATE KEY UPDATE state = VALUES(state), reason = VALUES(reason), cause = VALUES(cause), actor = VALUES(actor), since = IF(instance = '', VALUES(since), since), expires_at = VALUES(expires_at)`
	} else {
		put += ` ON CONFLICT (service, handler, scope, instance) DO UPDATE SET state = excluded.state, reason = excluded.reason, cause = excluded.cause,
actor = excluded.actor, since = CASE WHEN spillway_outages.instance = '' THEN excluded.since ELSE spillway_outages.since END, expires_at = excluded.expires_at`
	}
	const of = ` WHERE service = ? AND handler = ? AND scope = ?`
	return statements{
		list: db.Statement(`SELECT handler, scope, instance, state, reason, cause, actor, since FROM spillway_outages
WHERE service = ? AND (state = 'frozen' OR expires_at > now_ms() OR instance = ? AND instance <> '') ORDER BY handler, scope, instance`),
		put: db.Statement(put),
		// renew does not insert: a message of another instance may just have succeeded, and removed the row.
		renew: db.Statement(`UPDATE spillway_outages SET reason = ?, cause = ?, expires_at = now_ms() + ?` + of +
			` AND instance = ?`),
		release: db.Statement(`UPDATE spillway_outages SET state = 'closed', reason = ?, actor = ?, since = now_ms(), expires_at = now_ms() + ?
WHERE service = ? AND handler = ? AND scope = '' AND instance = '' AND state = 'frozen'`),
		remove: db.Statement(`DELETE FROM spillway_outages` + of + ` AND instance = ?`),
		proved: db.Statement(`DELETE FROM spillway_outages` + of + ` AND instance <> ''`),
		leave:  db.Statement(`DELETE FROM spillway_outages WHERE service = ? AND instance = ?`),
		purge:  db.Statement(`DELETE FROM spillway_outages WHERE service = ? AND state <> 'frozen' AND expires_at < now_ms() - ?`),
	}
}
