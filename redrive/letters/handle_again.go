package letters

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/database"
)

func (in *inner) HandleAgain(ctx context.Context, l Letter, act Act) (removed bool, err error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	if err := act.validate(); err != nil {
		return false, wrapped("handle again", err)
	}
	if l.Original == nil || l.Original.UUID == "" {
		return false, nil
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		// no lease: a handler is at work
		result, err := s.exec(ctx, tx, `DELETE FROM spillway_keys WHERE consumer = ? AND id = ? AND expires_at IS NULL`,
			s.db.Text(database.Column(s.consumer(l.Origin.Handler))), s.db.Text(database.Column(l.Original.UUID)))
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if removed = n > 0; err != nil || !removed {
			return err
		}
		return s.record(ctx, tx, EventKeyRemoved, act, subjectOf(l))
	})
	return removed, wrapped(fmt.Sprintf("let the handler of letter %d run again", l.Seq), err)
}

func (in *inner) CheckKeys(ctx context.Context) error {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return err
	}
	return wrapped("look for the receiver's keys", s.readKeys(ctx))
}
