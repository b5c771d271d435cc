package letters

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// Act says who changes letters, and why. The record of events keeps it.
type Act struct {
	// By names the person or program. The record keeps 1 KiB of it.
	By string
	// Reason says why, in words or as a code such as max_redrives_exceeded. It is UTF-8 text of at most 1 KiB.
	Reason string
	// RedriveID is the id of the drain or campaign that makes the change. It is UTF-8 text of at most 255 bytes.
	RedriveID string
	// Detail is what the event itself says, such as the edit of a letter. The record keeps 4 KiB of it. Default:
	// nothing.
	Detail string
}

const (
	maxBy     = 1 << 10 // bytes
	maxReason = 1 << 10
	maxDetail = 4 << 10
	maxID     = 255
)

// validate returns an error for what could not be found again as it was given.
func (a *Act) validate() error {
	for _, field := range []struct {
		name, value string
		most        int
	}{{"Reason", a.Reason, maxReason}, {"RedriveID", a.RedriveID, maxID}} {
		if boundedtext.Text(field.value, field.most) != field.value {
			return fmt.Errorf("the field Act.%s %q must be text of at most %d bytes", field.name, logged(field.value),
				field.most)
		}
	}
	return nil
}

// logged bounds a value that came with a message, or from a caller, before it goes into an error.
func logged(value string) string { return boundedtext.Text(value, 200) }

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
