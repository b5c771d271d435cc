package letters

import (
	"context"
	"database/sql"
	"time"
)

// LeaseWithin leases within a transaction that goes on.
func (s *Store) LeaseWithin(ctx context.Context, tx *sql.Tx, f Filter, seqs []int64) error {
	return s.leaseWithin(ctx, tx, f, seqs, "token", time.Hour)
}

// ReadAtMost is maxRead.
func (s *Store) ReadAtMost(bytes int) { s.maxRead = bytes }

// ForgottenID is what takes the place of an id.
var ForgottenID = forgottenID

// EachMinute reads the column recent.
var EachMinute = eachMinute

// Apart stores each letter by itself, as if no other were published.
func (s *Store) Apart() { s.batcher = nil }

// Run is what Plugin runs.
func (r *Retention) Run(ctx context.Context) { r.run(ctx) }

// Often lets a Retention look again after that time.
func (r *Retention) Often(every time.Duration) { r.every = every }
