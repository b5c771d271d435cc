package crashlimit

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/database"
)

// Store is where processes register and deliveries are counted: what Postgres, MySQL and SQLite return. It keeps two
// tables, spillway_processes and spillway_deliveries, which are nearly empty as long as nothing ends uncleanly.
type Store interface {
	// initialize creates the tables, or verifies those that are there.
	initialize(ctx context.Context) error
	// patience is how long one statement may take.
	patience() time.Duration
	// within tells whether ctx is inside of a claim that keeps everybody else out of the store.
	within(ctx context.Context) bool

	register(ctx context.Context, r registration) error
	// beat shows that a process lives, and tells whether it is still registered.
	beat(ctx context.Context, id string) (there bool, err error)
	// others returns all processes of a service but the one with this id.
	others(ctx context.Context, service, id string) ([]row, error)
	// lose marks a process as lost, and tells whether it did: not if it has beaten since, or was lost before.
	lose(ctx context.Context, id string, beats int64) (lost bool, err error)
	// forget removes a process if it is lost.
	forget(ctx context.Context, id string) error
	signOff(ctx context.Context, id string) error

	// enter leaves the mark of a delivery, and reports whether it did: not if the message has a delivery of that number.
	enter(ctx context.Context, service string, m mark, w written) (entered bool, err error)
	// marks returns what deliveries of a message left, in their order.
	marks(ctx context.Context, service string, m mark) ([]written, error)
	// clear removes the mark that a process wrote or, without a process, those of all deliveries up to a number.
	clear(ctx context.Context, service string, m mark, w written) error
	// leave removes all marks that a process wrote.
	leave(ctx context.Context, process string) error
	// sweep removes some marks older than age, and tells whether there may be more.
	sweep(ctx context.Context, age time.Duration) (more bool, err error)
}

// registration is a process that begins.
type registration struct {
	service, id, node string
	beat              time.Duration
}

// Postgres returns the store in a PostgreSQL database of version 11 or later, opened with a driver whose errors tell their
// SQLSTATE, such as pgx/v5/stdlib and lib/pq. The pool should have a connection to spare: claims of an idempotent receiver
// hold theirs for as long as handlers run, and a process that cannot beat looks like one that ended. The same holds for
// the other stores. None of them closes db; a nil db is an error of NewLimit.
func Postgres(db *sql.DB) Store { return newStore(db, &postgresDialect) }

// MySQL returns the store in a MySQL database of version 8.0 or later, or a MariaDB one of 10.5 or later, opened with
// github.com/go-sql-driver/mysql or a driver with errors of the same shape.
func MySQL(db *sql.DB) Store { return newStore(db, &mysqlDialect) }

// SQLite returns the store in a SQLite database of version 3.35 or later, opened with any driver. The database must be a
// file. Writers of the process stand in a row there, with the claims of an idempotent receiver on the same *sql.DB, and a
// handler inside such a claim keeps the beats of its process waiting: keep those handlers short, or give the limit a file
// of its own.
func SQLite(db *sql.DB) Store { return newStore(db, &sqliteDialect) }

type sqlStore struct {
	db *sql.DB
	*dialect
	say statements
}

func newStore(db *sql.DB, d *dialect) *sqlStore { return &sqlStore{db, d, d.statements()} }

func (s *sqlStore) initialize(ctx context.Context) error {
	return database.Of(s.kind, s.db).Upgrade(ctx, tables...)
}

func (s *sqlStore) patience() time.Duration { return s.timeout }

func (s *sqlStore) within(ctx context.Context) bool {
	claim := chain.ClaimOf(ctx)
	return claim != nil && claim.Locks(s.db)
}

// exec writes, and returns how many rows it touched.
func (s *sqlStore) exec(ctx context.Context, statement string, args ...any) (n int64, err error) {
	err = s.write(ctx, s.db, func() error {
		result, err := s.db.ExecContext(ctx, statement, args...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, err
}

func (s *sqlStore) register(ctx context.Context, r registration) error {
	_, err := s.exec(ctx, s.say.register, s.text(database.Column(r.service)), s.text(r.id), s.text(r.node), r.beat.Milliseconds())
	return err
}

func (s *sqlStore) beat(ctx context.Context, id string) (bool, error) {
	n, err := s.exec(ctx, s.say.beat, s.text(id))
	return n > 0, err
}

func (s *sqlStore) others(ctx context.Context, service, id string) (found []row, err error) {
	err = s.read(ctx, func() (err error) {
		found, err = s.rows(ctx, service, id)
		return err
	})
	return found, err
}

func (s *sqlStore) rows(ctx context.Context, service, id string) (found []row, err error) {
	rows, err := s.db.QueryContext(ctx, s.say.others, s.text(database.Column(service)), s.text(id))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r row
		var beat, lostFor int64
		if err := rows.Scan(&r.id, &r.beats, &beat, &r.lost, &lostFor); err != nil {
			return nil, err
		}
		r.beat, r.lostFor = milliseconds(beat), milliseconds(lostFor)
		found = append(found, r)
	}
	return found, rows.Err()
}

// milliseconds bounds what the database says: a clock may have jumped.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(0, n), int64(keepMarks/time.Millisecond))) * time.Millisecond
}

func (s *sqlStore) lose(ctx context.Context, id string, beats int64) (bool, error) {
	n, err := s.exec(ctx, s.say.lose, s.text(id), beats)
	return n > 0, err
}

func (s *sqlStore) forget(ctx context.Context, id string) error {
	_, err := s.exec(ctx, s.say.forget, s.text(id))
	return err
}

func (s *sqlStore) signOff(ctx context.Context, id string) error {
	_, err := s.exec(ctx, s.say.signOff, s.text(id))
	return err
}

func (s *sqlStore) enter(ctx context.Context, service string, m mark, w written) (bool, error) {
	n, err := s.exec(ctx, s.say.enter, append(s.key(service, m), w.delivery, s.text(w.process))...)
	return n > 0, err
}

func (s *sqlStore) marks(ctx context.Context, service string, m mark) (found []written, err error) {
	err = s.read(ctx, func() (err error) {
		found, err = s.marksOf(ctx, s.key(service, m))
		return err
	})
	return found, err
}

func (s *sqlStore) marksOf(ctx context.Context, key []any) (found []written, err error) {
	rows, err := s.db.QueryContext(ctx, s.say.marks, key...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var w written
		if err := rows.Scan(&w.delivery, &w.process); err != nil {
			return nil, err
		}
		found = append(found, w)
	}
	return found, rows.Err()
}

func (s *sqlStore) clear(ctx context.Context, service string, m mark, w written) error {
	statement, last := s.say.clear, any(w.delivery)
	if w.process != "" {
		statement, last = s.say.clearOwn, s.text(w.process)
	}
	_, err := s.exec(ctx, statement, append(s.key(service, m), last)...)
	return err
}

func (s *sqlStore) leave(ctx context.Context, process string) error {
	_, err := s.exec(ctx, s.say.leave, s.text(process))
	return err
}

// atOnce is how many marks one statement of a sweep removes.
const atOnce = 500

func (s *sqlStore) sweep(ctx context.Context, age time.Duration) (bool, error) {
	n, err := s.exec(ctx, s.say.sweep, age.Milliseconds())
	return n == atOnce, err
}

func (s *sqlStore) key(service string, m mark) []any {
	return []any{s.text(database.Column(service)), s.text(m.consumer), s.text(m.id), m.redrives}
}

func asBytes(s string) any { return []byte(s) }
func asText(s string) any  { return s }
