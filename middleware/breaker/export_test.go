package breaker

import (
	"context"
	"database/sql"
	"time"
)

// NewStoreEvery is NewStore with another interval.
func NewStoreEvery(ctx context.Context, db *sql.DB, service string, every time.Duration) (*Store, error) {
	s, err := NewStore(ctx, db, service)
	if s != nil {
		s.every = every
	}
	return s, err
}
