package crashlimit

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Store counts unfinished deliveries in a database. It keeps two tables, spillway_processes and spillway_deliveries,
// which are nearly empty as long as nothing ends uncleanly. It is safe for concurrent use, by several processes too.
type Store struct {
	db         *database.Database
	service    any // as it is bound
	statements statements
	timeout    time.Duration
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
	s := &Store{db: on, service: on.Text(service), statements: statementsFor(on), timeout: statementTimeout}
	if on.Kind() == database.SQLite {
		s.timeout *= 5 // a statement waits in a row with the claims of handlers
	}
	return s, nil
}

// store is what a Limit asks of its Store.
type store interface {
	// patience is how long one statement may take.
	patience() time.Duration
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
	// sweep removes some marks older than age, and reports whether there may be more.
	sweep(ctx context.Context, age time.Duration) (more bool, err error)
}

// registration is a process that begins.
type registration struct {
	id, node string
	interval time.Duration // between heartbeats
}

func (s *Store) patience() time.Duration         { return s.timeout }
func (s *Store) within(ctx context.Context) bool { return s.db.Held(ctx) }

// changed runs a statement, and reports whether it changed a row.
func (s *Store) changed(ctx context.Context, statement string, args ...any) (bool, error) {
	n, err := s.db.Exec(ctx, statement, args...)
	return n > 0, err
}

func (s *Store) register(ctx context.Context, r registration) error {
	_, err := s.db.Exec(ctx, s.statements.register, s.service, s.db.Text(r.id), s.db.Text(r.node),
		r.interval.Milliseconds())
	return err
}

func (s *Store) beat(ctx context.Context, id string) (bool, error) {
	return s.changed(ctx, s.statements.beat, s.db.Text(id))
}

func (s *Store) others(ctx context.Context, id string) (found []row, err error) {
	err = s.db.Query(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		var r row
		var interval, lostFor int64
		err := rows.Scan(&r.id, &r.beats, &interval, &r.lost, &lostFor)
		r.interval, r.lostFor = milliseconds(interval), milliseconds(lostFor)
		found = append(found, r)
		return err
	}, s.statements.others, s.service, s.db.Text(id))
	return found, err
}

// milliseconds bounds what the database says: a clock may have jumped.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(0, n), int64(keepMarks/time.Millisecond))) * time.Millisecond
}

func (s *Store) lose(ctx context.Context, id string, beats int64) (bool, error) {
	return s.changed(ctx, s.statements.lose, s.db.Text(id), beats)
}

func (s *Store) forget(ctx context.Context, id string) error {
	_, err := s.db.Exec(ctx, s.statements.forget, s.db.Text(id))
	return err
}

func (s *Store) signOff(ctx context.Context, id string) error {
	_, err := s.db.Exec(ctx, s.statements.signOff, s.db.Text(id))
	return err
}

func (s *Store) enter(ctx context.Context, m mark, w written) (bool, error) {
	return s.changed(ctx, s.statements.enter, append(s.key(m), w.delivery, s.db.Text(w.process))...)
}

func (s *Store) marks(ctx context.Context, m mark) (found []written, err error) {
	err = s.db.Query(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		var w written
		err := rows.Scan(&w.delivery, &w.process)
		found = append(found, w)
		return err
	}, s.statements.marks, s.key(m)...)
	return found, err
}

func (s *Store) clear(ctx context.Context, m mark, w written) error {
	statement, last := s.statements.clear, any(w.delivery)
	if w.process != "" {
		statement, last = s.statements.clearOwn, s.db.Text(w.process)
	}
	_, err := s.db.Exec(ctx, statement, append(s.key(m), last)...)
	return err
}

func (s *Store) leave(ctx context.Context, process string) error {
	_, err := s.db.Exec(ctx, s.statements.leave, s.db.Text(process))
	return err
}

func (s *Store) sweep(ctx context.Context, age time.Duration) (bool, error) {
	n, err := s.db.Exec(ctx, s.statements.sweep, age.Milliseconds())
	return n == sweepAtOnce, err
}

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

// statements are what a store says to its database.
type statements struct {
	register, beat, others, lose, forget, signOff string
	enter, marks, clear, clearOwn, leave, sweep   string
}

// ofMessage has the arguments of Store.key.
const ofMessage = ` WHERE service = ? AND consumer = ? AND id = ? AND redrives = ?`

// sweepAtOnce is how many marks one statement of a sweep removes.
const sweepAtOnce = 500

func statementsFor(db *database.Database) statements {
	enter := ` INTO spillway_deliveries (service, consumer, id, redrives, delivery, process, marked_at) VALUES (?, ?, ?, ?, ?, ?, now_ms())`
	register := `INSERT INTO spillway_processes (service, id, node, beat_ms, started_at, beats) VALUES (?, ?, ?, ?, now_ms(), 0)`
	sweep := ` FROM spillway_deliveries WHERE marked_at < now_ms() - ? LIMIT ` + strconv.Itoa(sweepAtOnce)
	if db.Kind() == database.MySQL {
		enter, sweep, register = `INSERT IGNORE`+enter, `DELETE`+sweep, register+` ON DUPLICATE KEY UPDATE id = id`
	} else {
		const key = `service, consumer, id, redrives, delivery`
		enter, sweep = `INSERT`+enter+` ON CONFLICT DO NOTHING`,
			`DELETE FROM spillway_deliveries WHERE (`+key+`) IN (SELECT `+key+sweep+`)`
		register += ` ON CONFLICT DO NOTHING`
	}
	return statements{
		register: db.Statement(register),
		beat:     db.Statement(`UPDATE spillway_processes SET beats = beats + 1, lost_at = NULL WHERE id = ?`),
		others: db.Statement(`SELECT id, beats, beat_ms, lost_at IS NOT NULL, COALESCE(now_ms() - lost_at, 0) FROM spillway_processes
WHERE service = ? AND id <> ?`),
		lose:    db.Statement(`UPDATE spillway_processes SET lost_at = now_ms() WHERE id = ? AND beats = ? AND lost_at IS NULL`),
		forget:  db.Statement(`DELETE FROM spillway_processes WHERE id = ? AND lost_at IS NOT NULL`),
		signOff: db.Statement(`DELETE FROM spillway_processes WHERE id = ?`),

		enter:    db.Statement(enter),
		marks:    db.Statement(`SELECT delivery, process FROM spillway_deliveries` + ofMessage + ` ORDER BY delivery`),
		clear:    db.Statement(`DELETE FROM spillway_deliveries` + ofMessage + ` AND delivery <= ?`),
		clearOwn: db.Statement(`DELETE FROM spillway_deliveries` + ofMessage + ` AND process = ?`),
		leave:    db.Statement(`DELETE FROM spillway_deliveries WHERE process = ?`),
		sweep:    db.Statement(sweep),
	}
}
