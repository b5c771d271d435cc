// Package sqlmarks has a crashlimit.Store on a database: in it the processes of a service count the deliveries of a
// message that did not return.
//
//	store, err := sqlmarks.NewStore(ctx, db, "shop")
//	limit, err := crashlimit.New(crashlimit.Config{Store: store})
package sqlmarks

import (
	"context"
	"database/sql"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

// store keeps two tables, which are nearly empty as long as nothing ends uncleanly.
type store struct {
	db      *database.Database
	service any // as it is bound
}

var tables = []schema.Table{
	{Component: "processes", Name: "spillway_processes", Key: []string{"id"}, Versions: []schema.Version{{
		File:    "0007_crashlimit.sql",
		Columns: []string{"service", "id", "node", "beat_ms", "started_at", "beats", "lost_at"},
	}}},
	{Component: "deliveries", Name: "spillway_deliveries",
		Key: []string{"service", "consumer", "id", "redrives", "delivery"}, Versions: []schema.Version{{
			File:    "0007_crashlimit.sql",
			Columns: []string{"service", "consumer", "id", "redrives", "delivery", "process", "marked_at"},
		}}},
}

// NewStore returns a Store on a PostgreSQL, MySQL, MariaDB or SQLite database: it asks db which one. It creates its
// tables spillway_processes and spillway_deliveries, or upgrades those that are there, and waits for that for at most 30
// seconds. The Store does not close db. It is safe for concurrent use, by several processes too.
//
// The service names the processes that belong together: an unclean end of one makes all of them count. It has at most
// 100 letters, digits, dots, underscores and hyphens. It is required on a database server, where other services may be
// too: without it, their crashes would be taken for this service's. On SQLite it may be empty.
//
// The pool should have a connection to spare: claims of an idempotent receiver hold theirs for as long as handlers run,
// and a process that cannot send its heartbeat looks like one that ended. On SQLite the database must be a file.
// Writers of a process come one after the other there, so a handler inside a claim on the same *sql.DB delays the
// heartbeat of its process: keep such handlers short, or give the limit a file of its own.
func NewStore(ctx context.Context, db *sql.DB, service string) (crashlimit.Store, error) {
	on, err := database.Open(ctx, "sqlmarks: NewStore", db, service, tables...)
	if err != nil {
		return nil, err
	}
	return &store{db: on, service: on.Text(service)}, nil
}

func (s *store) Within(ctx context.Context) bool { return s.db.Held(ctx) }

func (s *store) Column(name string) string { return database.Column(name) }

// exec reports whether a statement changed a row.
func (s *store) exec(ctx context.Context, statement string, args ...any) (bool, error) {
	n, err := s.db.Exec(ctx, s.db.Statement(statement), args...)
	return n > 0, err
}

// insert reports whether a row is new. It changes none that is there.
func (s *store) insert(ctx context.Context, row string, args ...any) (bool, error) {
	if s.db.Kind() == database.MySQL { // with ON DUPLICATE KEY UPDATE some clients count the row that is there
		return s.exec(ctx, `INSERT IGNORE INTO `+row, args...)
	}
	return s.exec(ctx, `INSERT INTO `+row+` ON CONFLICT DO NOTHING`, args...)
}

func (s *store) Register(ctx context.Context, p deliveries.Process) error {
	_, err := s.insert(ctx, `spillway_processes (service, id, node, beat_ms, started_at, beats)
VALUES (?, ?, ?, ?, now_ms(), 0)`, s.service, s.db.Text(p.ID), s.db.Text(p.Node), p.Interval.Milliseconds())
	return err
}

func (s *store) Beat(ctx context.Context, id string) (bool, error) {
	return s.exec(ctx, `UPDATE spillway_processes SET beats = beats + 1, lost_at = NULL WHERE id = ?`, s.db.Text(id))
}

func (s *store) Others(ctx context.Context, id string) (found []deliveries.Process, err error) {
	err = s.db.Query(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		var p deliveries.Process
		var interval, lostFor int64
		err := rows.Scan(&p.ID, &p.Beats, &interval, &p.Lost, &lostFor)
		p.Interval, p.LostFor = database.Microseconds(interval), max(0, database.Microseconds(lostFor))
		found = append(found, p)
		return err
	}, s.db.Statement(`SELECT id, beats, 1000 * beat_ms, lost_at IS NOT NULL, COALESCE(1000 * (now_ms() - lost_at), 0)
FROM spillway_processes WHERE service = ? AND id <> ?`), s.service, s.db.Text(id))
	return found, err
}

func (s *store) Lose(ctx context.Context, id string, beats int64) (bool, error) {
	return s.exec(ctx, `UPDATE spillway_processes SET lost_at = now_ms() WHERE id = ? AND beats = ? AND lost_at IS NULL`,
		s.db.Text(id), beats)
}

func (s *store) Forget(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `DELETE FROM spillway_processes WHERE id = ? AND lost_at IS NOT NULL`, s.db.Text(id))
	return err
}

func (s *store) SignOff(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `DELETE FROM spillway_processes WHERE id = ?`, s.db.Text(id))
	return err
}

func (s *store) Enter(ctx context.Context, of deliveries.Key, m deliveries.Mark) (bool, error) {
	return s.insert(ctx, `spillway_deliveries (service, consumer, id, redrives, delivery, process, marked_at)
VALUES (?, ?, ?, ?, ?, ?, now_ms())`, append(s.key(of), m.Delivery, s.db.Text(m.Process))...)
}

func (s *store) Marks(ctx context.Context, of deliveries.Key) (found []deliveries.Found, err error) {
	err = s.db.Query(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		var f deliveries.Found
		var interval int64
		err := rows.Scan(&f.Delivery, &f.Process, &f.Beats, &interval, &f.Ended)
		f.Interval = database.Microseconds(interval)
		found = append(found, f)
		return err
	}, s.db.Statement(`SELECT d.delivery, d.process, COALESCE(p.beats, 0), COALESCE(1000 * p.beat_ms, 0),
p.id IS NULL OR p.lost_at IS NOT NULL
FROM spillway_deliveries d LEFT JOIN spillway_processes p ON p.id = d.process
WHERE d.service = ? AND d.consumer = ? AND d.id = ? AND d.redrives = ? ORDER BY d.delivery`), s.key(of)...)
	return found, err
}

func (s *store) Clear(ctx context.Context, of deliveries.Key, m deliveries.Mark) error {
	which, value := `delivery <= ?`, any(m.Delivery)
	if m.Process != "" {
		which, value = `process = ?`, s.db.Text(m.Process)
	}
	_, err := s.exec(ctx, `DELETE FROM spillway_deliveries
WHERE service = ? AND consumer = ? AND id = ? AND redrives = ? AND `+which, append(s.key(of), value)...)
	return err
}

func (s *store) Leave(ctx context.Context, process string) error {
	_, err := s.exec(ctx, `DELETE FROM spillway_deliveries WHERE process = ?`, s.db.Text(process))
	return err
}

func (s *store) Sweep(ctx context.Context, age, placed time.Duration) error {
	_, err := s.exec(ctx, `DELETE FROM spillway_deliveries WHERE marked_at < now_ms() - ?
OR (service, consumer, id, redrives) IN (SELECT * FROM (SELECT service, consumer, id, redrives FROM spillway_deliveries
WHERE delivery = 0 AND marked_at < now_ms() - ?) AS placed)`, age.Milliseconds(), placed.Milliseconds())
	return err
}

// key has the arguments that name a message.
func (s *store) key(of deliveries.Key) []any {
	return []any{s.service, s.db.Text(of.Consumer), s.db.Text(of.ID), of.Redrives}
}
