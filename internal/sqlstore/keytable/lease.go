package keytable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// ErrLeaseLost says that a lease is no longer its owner's.
var ErrLeaseLost = errors.New("the lease is lost: it expired, and another delivery took the key over, or the key was removed")

// releaseTimeout bounds the release of a lease that was won, perhaps, and is not wanted.
const releaseTimeout = time.Second

// LeaseIn leases a key in db for d, by the database's clock. Where the key is applied, the lease is of what was recorded
// and of nothing else. A key that another owner holds is ErrHeld.
func LeaseIn(ctx context.Context, db *database.Database, row Row, d time.Duration) (*Lease, error) {
	lease := &Lease{db: db, dialect: DialectOf(db.Kind()), leasing: leasings[db.Kind()], row: row, duration: millis(d)}
	err := lease.win(ctx)
	if err == nil {
		return lease, nil
	}
	// the answer to the commit was lost: without this the key could not be leased until it expired
	if lease.fence != 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = lease.Release(ctx)
	}
	return nil, fmt.Errorf("%s: lease the key: %w", db.Kind(), err)
}

// millis is one more than d, because the clock that it is added to leaves out what is less than one: no lease is over
// before its owner thinks so.
func millis(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() + 1 }

// Lease is a key that its owner has until a time. It may be used by many goroutines. Its transactions are over before
// its methods return.
type Lease struct {
	db       *database.Database
	dialect  *Dialect
	leasing  leasing
	row      Row
	duration int64
	fence    int64
	recorded *Record
}

// win enters the key, or takes it over.
func (l *Lease) win(ctx context.Context) error {
	for range maxEnter {
		won, found, err := l.try(ctx)
		if err != nil || won || found {
			return err
		}
	}
	return ErrHeld // by one after another
}

// try is one transaction, or two where the first fails to insert: then it holds a shared lock in MySQL, and two of
// those that go on to write deadlock.
func (l *Lease) try(ctx context.Context) (won, found bool, err error) {
	d := l.dialect
	err = l.db.Write(ctx, func(q *sql.Tx) (err error) {
		won, found, l.recorded = false, false, nil // of a run before this one
		won, err = d.change(ctx, q, l.leasing.enter, d.text(l.row.Consumer), d.text(l.row.ID), l.duration)
		if err != nil {
			return err
		}
		if won {
			return l.readFence(ctx, q)
		}
		won, found, err = l.take(ctx, q)
		return err
	})
	if err != nil && d.duplicate != nil && d.duplicate(err) {
		err = l.db.Write(ctx, func(q *sql.Tx) (err error) {
			won, found, err = l.take(ctx, q)
			return err
		})
	}
	return won, found, err
}

// take takes over a key that is there. Where that failed it finds what was recorded, or ErrHeld, or nothing: then the
// key was purged, applied or given up in between.
func (l *Lease) take(ctx context.Context, q Querier) (won, found bool, err error) {
	l.recorded = nil
	statement, args := l.leasing.take, append([]any{l.duration}, l.key()...)
	if l.row.Versioned {
		statement, args = l.leasing.takeVersion, append(args, l.row.Version)
	}
	if won, err = l.dialect.change(ctx, q, statement, args...); err != nil {
		return false, false, err
	}
	if won {
		return true, false, l.readFence(ctx, q)
	}
	found, err = l.find(ctx, q)
	return false, found, err
}

func (l *Lease) find(ctx context.Context, q Querier) (found bool, err error) {
	record, free, err := l.dialect.Find(ctx, q, l.row)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	lower := l.row.Versioned && (!record.Versioned || record.Version < l.row.Version)
	switch {
	case !lower && (free || record.Versioned): // a lease for a newer version leaves what is applied where it was
		l.recorded = record
		return true, nil
	case !free:
		return false, ErrHeld
	}
	return false, nil
}

func (l *Lease) readFence(ctx context.Context, q Querier) error {
	return q.QueryRowContext(ctx, l.leasing.fence, l.key()...).Scan(&l.fence)
}

func (l *Lease) key() []any {
	return []any{l.dialect.text(l.row.Consumer), l.dialect.text(l.row.ID)}
}

// Fence is the fencing token: it rises with every lease of the key, as long as its row is there. It is 0 where the key
// was applied.
func (l *Lease) Fence() int64 { return l.fence }

// Recorded is what stands there of a key that was applied before, or nil where the lease was won.
func (l *Lease) Recorded() *Record { return l.recorded }

var errApplied = errors.New("the key was applied before, and is not leased")

// Renew makes the lease last for its duration from now, by the database's clock. One that has expired is renewed too,
// if no other owner took the key.
func (l *Lease) Renew(ctx context.Context) error {
	return l.owner(ctx, "renew the lease", func(q *sql.Tx) error {
		return l.changeOr(ctx, q, l.leasing.held, l.leasing.renew, l.duration)
	})
}

// Complete makes the key an applied one. It may be tried again after any error.
func (l *Lease) Complete(ctx context.Context, outputs []byte) error {
	var recorded any // a nil []byte is an empty value to some drivers
	if len(outputs) > 0 {
		recorded = outputs
	}
	return l.owner(ctx, "complete the lease", func(q *sql.Tx) error {
		return l.changeOr(ctx, q, l.leasing.completed, l.leasing.complete, recorded, l.row.Fingerprint, l.row.version())
	})
}

// Release gives the lease up. The row stays, with its fence; one that is lost is no error.
func (l *Lease) Release(ctx context.Context) error {
	if l.recorded != nil {
		return nil
	}
	return l.owner(ctx, "give the lease up", func(q *sql.Tx) error {
		_, err := l.dialect.change(ctx, q, l.leasing.release, append(l.key(), l.fence)...)
		return err
	})
}

func (l *Lease) owner(ctx context.Context, doing string, work func(*sql.Tx) error) error {
	if l.recorded != nil {
		return fmt.Errorf("%s: %s: %w", l.db.Kind(), doing, errApplied)
	}
	if err := l.db.Write(ctx, work); err != nil {
		return fmt.Errorf("%s: %s: %w", l.db.Kind(), doing, err)
	}
	return nil
}

// changeOr runs a statement on the row while its fence is still ours. Where that changes nothing, same reports whether
// it is because the row is as it should be already: then a lost answer is made up for, and MySQL counts no row that
// stays the same, as one does that is renewed twice within a millisecond.
func (l *Lease) changeOr(ctx context.Context, q Querier, same, statement string, args ...any) error {
	owned := append(l.key(), l.fence)
	changed, err := l.dialect.change(ctx, q, statement, append(args, owned...)...)
	if err != nil || changed {
		return err
	}
	n := 0
	if err := q.QueryRowContext(ctx, same, owned...).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return ErrLeaseLost
	}
	return nil
}

// leasing is how one database leases keys. A lease leaves alone what is of the applied key: outputs, fingerprint,
// version.
type leasing struct {
	// enter inserts a leased row: consumer, id, duration. Where the key is there it changes nothing, or is a duplicate.
	enter string
	// take leases a key whose lease is over, and that was not applied before it: duration, consumer, id. With
	// takeVersion it may also be applied, with a lower version or none: duration, consumer, id, version.
	take, takeVersion string
	// fence reads the fence of a lease that was just won: consumer, id.
	fence string
	// renew: duration, consumer, id, fence.
	renew string
	// held counts what renew would change: consumer, id, fence.
	held string
	// complete makes the key an applied one: outputs, fingerprint, version, consumer, id, fence.
	complete string
	// completed counts what complete left behind: consumer, id, fence.
	completed string
	// release: consumer, id, fence.
	release string
}

var leasings = map[database.Kind]leasing{
	// The fence is by the time at which the row is written, after the statement waited for its lock.
	database.Postgres: newLeasing(database.Postgres, `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`,
		"GREATEST", " ON CONFLICT DO NOTHING"),
	database.MySQL:  newLeasing(database.MySQL, "now_us()", "GREATEST", ""),
	database.SQLite: newLeasing(database.SQLite, "now_us()", "MAX", " ON CONFLICT DO NOTHING"),
}

// newLeasing writes the statements with the clock of a database in microseconds, as far as it goes, and its greatest of
// two numbers. A fence rises by at least two, because completing takes one: so a row that is applied with the fence
// after a lease's own was completed by that lease, and not by a claim that took over without a fence.
func newLeasing(kind database.Kind, micros, greatest, orNothing string) leasing {
	const (
		key   = `WHERE consumer = ? AND id = ?`
		owned = key + ` AND fence = ? AND expires_at > 0`
		begin = `applied_at = now_ms(), expires_at = now_ms() + ?`
	)
	take := `UPDATE spillway_keys SET ` + begin + `, fence = ` + greatest + `(COALESCE(fence, 0) + 2, ` + micros +
		`) ` +
		key
	l := leasing{
		enter: `INSERT INTO spillway_keys (consumer, id, applied_at, fence, expires_at) VALUES (?, ?, now_ms(), ` +
			micros +
			`, now_ms() + ?)` + orNothing,
		take:        take + ` AND version IS NULL AND ` + leaseOver,
		takeVersion: take + ` AND (expires_at IS NULL OR ` + leaseOver + `) AND (version IS NULL OR version < ?)`,
		fence:       `SELECT fence FROM spillway_keys ` + key,
		renew:       `UPDATE spillway_keys SET ` + begin + ` ` + owned,
		held:        `SELECT count(*) FROM spillway_keys ` + owned,
		complete: `UPDATE spillway_keys SET outputs = ?, fingerprint = ?, version = ?, applied_at = now_ms(), fence = fence + 1, expires_at = NULL ` +
			owned,
		completed: `SELECT count(*) FROM spillway_keys ` + key + ` AND fence - 1 = ? AND expires_at IS NULL`,
		release:   `UPDATE spillway_keys SET expires_at = 0 ` + owned,
	}
	for _, text := range []*string{&l.enter, &l.take, &l.takeVersion, &l.fence, &l.renew, &l.held, &l.complete,
		&l.completed, &l.release} {
		*text = statement(kind, *text)
	}
	return l
}
