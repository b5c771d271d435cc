package delivery

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/keys"
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

	// enter leaves the mark of a first delivery, or tells how many there are already and leaves nothing.
	enter(ctx context.Context, service string, m mark, process string) (earlier int, err error)
	// again counts a delivery and tells how many there are with it.
	again(ctx context.Context, service string, m mark, process string) (deliveries int, err error)
	// clear removes a mark, or, where a process is given, only one that this process wrote last.
	clear(ctx context.Context, service string, m mark, process string) error
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
	for _, table := range s.tables {
		if err := s.ensure(ctx, s.db, table); err != nil {
			return err
		}
	}
	return nil
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
	_, err := s.exec(ctx, s.say.register, s.text(keys.Column(r.service)), s.text(r.id), s.text(r.node), r.beat.Milliseconds())
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
	rows, err := s.db.QueryContext(ctx, s.say.others, s.text(keys.Column(service)), s.text(id))
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

func (s *sqlStore) enter(ctx context.Context, service string, m mark, process string) (earlier int, err error) {
	args := s.key(service, m)
	n, err := s.exec(ctx, s.say.enter, append(args, s.text(process))...)
	if err != nil || n > 0 {
		return 0, err
	}
	err = s.read(ctx, func() error { return s.db.QueryRowContext(ctx, s.say.earlier, args...).Scan(&earlier) })
	if errors.Is(err, sql.ErrNoRows) { // it was removed meanwhile: a duplicate returned
		return s.enter(ctx, service, m, process)
	}
	return earlier, err
}

func (s *sqlStore) again(ctx context.Context, service string, m mark, process string) (deliveries int, err error) {
	err = s.write(ctx, s.db, func() (err error) {
		deliveries, err = s.count(ctx, s.db, s.say.again, append(s.key(service, m), s.text(process)))
		return err
	})
	return deliveries, err
}

func (s *sqlStore) clear(ctx context.Context, service string, m mark, process string) error {
	statement, args := s.say.clear, s.key(service, m)
	if process != "" {
		statement, args = s.say.clearOwn, append(args, s.text(process))
	}
	_, err := s.exec(ctx, statement, args...)
	return err
}

// atOnce is how many marks one statement of a sweep removes.
const atOnce = 500

func (s *sqlStore) sweep(ctx context.Context, age time.Duration) (bool, error) {
	n, err := s.exec(ctx, s.say.sweep, age.Milliseconds())
	return n == atOnce, err
}

func (s *sqlStore) key(service string, m mark) []any {
	return []any{s.text(keys.Column(service)), s.text(m.consumer), s.text(m.id)}
}

// returned reads the count that a statement returns.
func returned(ctx context.Context, db *sql.DB, statement string, args []any) (n int, err error) {
	err = db.QueryRowContext(ctx, statement, args...).Scan(&n)
	return n, err
}

func asBytes(s string) any { return []byte(s) }
func asText(s string) any  { return s }
