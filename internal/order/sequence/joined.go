package sequence

import (
	"context"
	"database/sql"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Join makes the store read and write in the transaction in which a subscriber consumes the message, if that is of the
// same *sql.DB. What is parked on another connection would stay when the message's transaction is rolled back.
func (s *Store) Join() { s.joins = true }

// Joins reports whether the store joins the transactions of a subscriber on db.
func (s *Store) Joins(db *sql.DB) bool { return s.joins && s.db.DB() == db }

// joined runs work in the transaction of ctx. It reports false if there is none.
func (s *Store) joined(ctx context.Context, work func(*sql.Tx) error) (bool, error) {
	if !s.joins {
		return false, nil
	}
	return chain.WriteJoined(ctx, s.db.DB(), work)
}

func (s *Store) exec(ctx context.Context, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	joined, err := s.joined(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	if !joined {
		_, err = s.db.Exec(ctx, statement, args...)
	}
	return err
}

// query is Query of the database, or QueryPlanned.
func (s *Store) query(ctx context.Context, of query, reset func(), scan func(*sql.Rows) error, statement string,
	args ...any) error {
	joined, err := s.joined(ctx, func(tx *sql.Tx) error {
		reset()
		rows, err := tx.QueryContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		return database.Each(rows, scan)
	})
	if !joined {
		err = of(ctx, reset, scan, statement, args...)
	}
	return err
}

type query func(ctx context.Context, reset func(), scan func(*sql.Rows) error, statement string, args ...any) error
