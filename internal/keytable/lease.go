package keytable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
)

// ErrLeaseLost says that a lease is no longer its owner's.
var ErrLeaseLost = errors.New("the lease is lost: it expired, and another delivery took the key over, or the key was removed")

// Leases leases the keys of one database, in transactions that are over before its methods return.
type Leases struct {
	db      *database.Database
	dialect *Dialect
	leasing
}

// LeasesIn leases keys in db.
func LeasesIn(db *database.Database) *Leases {
	return &Leases{db, DialectOf(db.Kind()), leasings[db.Kind()]}
}

func (l *Leases) write(ctx context.Context, work func(Querier) error) error {
	return l.db.Write(ctx, func(tx *sql.Tx) error { return work(tx) })
}

// releaseTimeout bounds the release of a lease that was won, perhaps, and is not wanted.
const releaseTimeout = time.Second

// Lease leases a key for d by the database's clock. Where the key is applied, the lease is of what was recorded and of
// nothing else. A key that another owner holds is ErrHeld.
func (l *Leases) Lease(ctx context.Context, row Row, d time.Duration) (*Lease, error) {
	lease := &Lease{of: l, row: row, duration: millis(d)}
	err := lease.win(ctx)
	if err == nil {
		return lease, nil
	}
	if lease.fence != 0 { // the answer to the commit was lost: without this the key could not be leased until it expired
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = lease.Release(ctx)
	}
	return nil, fmt.Errorf("%s: lease the key: %w", l.db.Kind(), err)
}

// millis is one more than d, because the clock that it is added to leaves out what is less than one: no lease is over
// before its owner thinks so.
func millis(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() + 1 }

// Lease is a key that its owner has until a time. It may be used by many goroutines.
type Lease struct {
	of       *Leases
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
	d := l.of.dialect
	err = l.of.write(ctx, func(q Querier) (err error) {
		won, found, l.recorded = false, false, nil // of a run before this one
		won, err = d.change(ctx, q, l.of.leasing.enter, d.text(l.row.Consumer), d.text(l.row.ID), l.duration)
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
		err = l.of.write(ctx, func(q Querier) (err error) {
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
	statement, args := l.of.leasing.take, append([]any{l.duration}, l.key()...)
	if l.row.Versioned {
		statement, args = l.of.takeVersion, append(args, l.row.Version)
	}
	if won, err = l.of.dialect.change(ctx, q, statement, args...); err != nil {
		return false, false, err
	}
	if won {
		return true, false, l.readFence(ctx, q)
	}
	found, err = l.find(ctx, q)
	return false, found, err
}

func (l *Lease) find(ctx context.Context, q Querier) (found bool, err error) {
	record, free, err := l.of.dialect.Find(ctx, q, l.row)
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
	return q.QueryRowContext(ctx, l.of.leasing.fence, l.key()...).Scan(&l.fence)
}

func (l *Lease) key() []any {
	return []any{l.of.dialect.text(l.row.Consumer), l.of.dialect.text(l.row.ID)}
}
