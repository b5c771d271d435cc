package letters

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/database"
)

// HandleAgain lets the handler of a leased letter run again although the idempotent receiver has applied its message:
// it removes the receiver's key, whose id is the message's, and records EventKeyRemoved. What the handler wrote before
// is written again then, and what it produces anew takes the place of the recorded outputs. It reports false if there
// is no such key: then the handler runs anyway, or the receiver has other keys. Publish the letter after it.
func (s *Store) HandleAgain(ctx context.Context, t Taken, act Act) (removed bool, err error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	if err := act.validate(); err != nil {
		return false, wrapped("handle again", err)
	}
	if t.Original == nil || t.Original.UUID == "" {
		return false, nil
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		// no lease: a handler is at work
		result, err := s.exec(ctx, tx, `DELETE FROM spillway_keys WHERE consumer = ? AND id = ? AND expires_at IS NULL`,
			s.db.Text(database.Column(s.consumer(t.Origin.Handler))), s.db.Text(database.Column(t.Original.UUID)))
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if removed = n > 0; err != nil || !removed {
			return err
		}
		return s.record(ctx, tx, EventKeyRemoved, act, subjectsOf([]Taken{t})...)
	})
	return removed, wrapped(fmt.Sprintf("let the handler of letter %d run again", t.Seq), err)
}

// CheckKeys returns an error if the idempotent receiver does not keep its keys in the database of the letters.
func (s *Store) CheckKeys(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return wrapped("look for the receiver's keys", s.readKeys(ctx))
}
