package crashlimit

import (
	"context"
	"database/sql"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Store counts unfinished deliveries in a database. It keeps two tables, spillway_processes and spillway_deliveries,
// which are nearly empty as long as nothing ends uncleanly. It is safe for concurrent use, by several processes too.
type Store struct {
	db      *database.Database
	service any           // as it is bound
	timeout time.Duration // of one statement
}

// NewStore returns a Store on a PostgreSQL, MySQL, MariaDB or SQLite database: it asks db which one. It creates its
// tables, or upgrades those that are there, and waits for that for at most 30 seconds. The Store does not close db.
//
// The service names the processes that belong together: an unclean end of one makes all of them count. It has at most
// 100 letters, digits, dots, underscores and hyphens. It is required on a database server, where other services may be
// too: without it, their crashes would be taken for this service's. On SQLite it may be empty.
//
// The pool should have a connection to spare: claims of an idempotent receiver hold theirs for as long as handlers run,
// and a process that cannot send its heartbeat looks like one that ended. On SQLite the database must be a file.
// Writers of a process come one after the other there, so a handler inside a claim on the same *sql.DB delays the
// heartbeat of its process: keep such handlers short, or give the limit a file of its own.
func NewStore(ctx context.Context, db *sql.DB, service string) (*Store, error) {
	on, err := database.Open(ctx, "crashlimit: NewStore", db, service, tables...)
	if err != nil {
		return nil, err
	}
	s := &Store{db: on, service: on.Text(service), timeout: statementTimeout}
	if on.Kind() == database.SQLite {
		s.timeout *= 5 // a statement waits in a row with the claims of handlers
	}
	return s, nil
}

// store is what a Limit asks of its Store. Each method is one statement, whose time is bounded.
type store interface {
	// within reports whether ctx is inside a claim that keeps all others out of the store.
	within(ctx context.Context) bool

	// register makes a process known. It can be repeated if its answer was lost.
	register(ctx context.Context, r registration) error
	// beat shows that a process lives, and reports whether it is still registered.
	beat(ctx context.Context, id string) (there bool, err error)
	// others returns all processes of the service but the one with this id.
	others(ctx context.Context, id string) ([]row, error)
	// lose marks a process as lost, and reports whether it did: not if it has beaten since, or was lost before.
	lose(ctx context.Context, id string, beats int64) (lost bool, err error)
	// forget removes a process if it is lost.
	forget(ctx context.Context, id string) error
	signOff(ctx context.Context, id string) error

	// enter leaves the mark of a delivery, and reports whether it did: not if the message has a delivery of that
	// number.
	enter(ctx context.Context, m mark, w written) (entered bool, err error)
	// marks returns what deliveries of a message left, in their order.
	marks(ctx context.Context, m mark) ([]written, error)
	// clear removes the mark that a process wrote or, without a process, those of all deliveries up to a number.
	clear(ctx context.Context, m mark, w written) error
	// leave removes all marks that a process wrote.
	leave(ctx context.Context, process string) error
	// sweep removes the marks older than age.
	sweep(ctx context.Context, age time.Duration) error
}

// registration is a process that begins.
type registration struct {
	id, node string
	interval time.Duration // between heartbeats
}

func (s *Store) within(ctx context.Context) bool { return s.db.Held(ctx) }

// exec reports whether a statement changed a row.
func (s *Store) exec(ctx context.Context, statement string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	n, err := s.db.Exec(ctx, s.db.Statement(statement), args...)
	return n > 0, err
}

// insert reports whether a row is new. It changes none that is there.
func (s *Store) insert(ctx context.Context, row string, args ...any) (bool, error) {
	if s.db.Kind() == database.MySQL { // with ON DUPLICATE KEY UPDATE some clients count the row that is there
		return s.exec(ctx, `INSERT IGNORE INTO `+row, args...)
	}
	return s.exec(ctx, `INSERT INTO `+row+` ON CONFLICT DO NOTHING`, args...)
}

func (s *Store) query(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.db.Query(ctx, reset, scan, s.db.Statement(query), args...)
}

func (s *Store) register(ctx context.Context, r registration) error {
	_, err := s.insert(ctx, `spillway_processes (service, id, node, beat_ms, started_at, beats)
VALUES (?, ?, ?, ?, now_ms(), 0)`, s.service, s.db.Text(r.id), s.db.Text(r.node), r.interval.Milliseconds())
	return err
}

func (s *Store) beat(ctx context.Context, id string) (bool, error) {
	return s.exec(ctx, `UPDATE spillway_processes SET beats = beats + 1, lost_at = NULL WHERE id = ?`, s.db.Text(id))
}

func (s *Store) others(ctx context.Context, id string) (found []row, err error) {
	err = s.query(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		var r row
		var interval, lostFor int64
		err := rows.Scan(&r.id, &r.beats, &interval, &r.lost, &lostFor)
		r.interval, r.lostFor = milliseconds(interval), milliseconds(lostFor)
		found = append(found, r)
		return err
	}, `SELECT id, beats, beat_ms, lost_at IS NOT NULL, COALESCE(now_ms() - lost_at, 0) FROM spillway_processes
WHERE service = ? AND id <> ?`, s.service, s.db.Text(id))
	return found, err
}

// milliseconds bounds what the database says: a clock may have jumped.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(0, n), int64(keepMarks/time.Millisecond))) * time.Millisecond
}

func (s *Store) lose(ctx context.Context, id string, beats int64) (bool, error) {
	return s.exec(ctx, `UPDATE spillway_processes SET lost_at = now_ms() WHERE id = ? AND beats = ? AND lost_at IS NULL`,
		s.db.Text(id), beats)
}

func (s *Store) forget(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `DELETE FROM spillway_processes WHERE id = ? AND lost_at IS NOT NULL`, s.db.Text(id))
	return err
}

func (s *Store) signOff(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `DELETE FROM spillway_processes WHERE id = ?`, s.db.Text(id))
	return err
}

func (s *Store) enter(ctx context.Context, m mark, w written) (bool, error) {
	return s.insert(ctx, `spillway_deliveries (service, consumer, id, redrives, delivery, process, marked_at)
VALUES (?, ?, ?, ?, ?, ?, now_ms())`, append(s.key(m), w.delivery, s.db.Text(w.process))...)
}

func (s *Store) marks(ctx context.Context, m mark) (found []written, err error) {
	err = s.query(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		var w written
		err := rows.Scan(&w.delivery, &w.process)
		found = append(found, w)
		return err
	}, `SELECT delivery, process FROM spillway_deliveries
WHERE service = ? AND consumer = ? AND id = ? AND redrives = ? ORDER BY delivery`, s.key(m)...)
	return found, err
}

func (s *Store) clear(ctx context.Context, m mark, w written) error {
	last, value := `delivery <= ?`, any(w.delivery)
	if w.process != "" {
		last, value = `process = ?`, s.db.Text(w.process)
	}
	_, err := s.exec(ctx, `DELETE FROM spillway_deliveries WHERE service = ? AND consumer = ? AND id = ? AND redrives = ? AND `+
		last, append(s.key(m), value)...)
	return err
}

func (s *Store) leave(ctx context.Context, process string) error {
	_, err := s.exec(ctx, `DELETE FROM spillway_deliveries WHERE process = ?`, s.db.Text(process))
	return err
}

func (s *Store) sweep(ctx context.Context, age time.Duration) error {
	_, err := s.exec(ctx, `DELETE FROM spillway_deliveries WHERE marked_at < now_ms() - ?`, age.Milliseconds())
	return err
}

// key has the arguments that name a message.
func (s *Store) key(m mark) []any {
	return []any{s.service, s.db.Text(m.consumer), s.db.Text(m.id), m.redrives}
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
