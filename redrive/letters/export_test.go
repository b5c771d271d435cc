package letters

import (
	"context"
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// LeaseWithin leases within a transaction that goes on.
func (s *Store) LeaseWithin(ctx context.Context, tx *sql.Tx, f Filter, seqs []int64) error {
	_, err := s.leaseWithin(ctx, tx, f, seqs, "token", time.Hour)
	return err
}

// TendTimes lets as many workers look after the notes as they were when all of them had read them.
func (s *Store) TendTimes(ctx context.Context, n int) error {
	rows, err := s.notes(ctx, nil)
	for range n {
		for _, r := range rows {
			s.tend(ctx, &r)
		}
	}
	return err
}

// ReadAtMost is maxRead.
func (s *Store) ReadAtMost(bytes int) { s.maxRead = bytes }

// ForgottenID is what takes the place of an id.
var ForgottenID = forgottenID

// RetentionOf returns what the plugin of NewRetention runs.
var RetentionOf = newRetention

// Run is what the plugin runs.
func (r *retention) Run(ctx context.Context) { r.run(ctx) }

// Often lets it look again after that time.
func (r *retention) Often(every time.Duration) { r.every = every }

// Plugin runs it with a router.
func (r *retention) Plugin(router *message.Router) error { return r.life.Plugin(router) }
