package letters

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

func (in *inner) KeepsWaiting() time.Duration { return time.Duration(in.retention.Load()) }

// The record knows of a message what its letters do not say: a redrive that lost the metadata on the way, a letter that
// was purged, one that a person put back.
func (in *inner) CameBack(ctx context.Context, tx *sql.Tx, seqs ...int64) (map[int64]bool, error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if len(seqs) > MaxListed {
		return nil, fmt.Errorf("letters: ask for %d letters: at most %d are possible: use several calls", len(seqs),
			MaxListed)
	}
	back := make(map[int64]bool)
	if len(seqs) == 0 {
		return back, nil
	}
	ids := make(map[string][]int64)
	keys, args := s.among(seqs)
	err := s.rows(ctx, tx, func(rows *sql.Rows) error {
		var seq int64
		var id []byte
		var arrived bool
		err := rows.Scan(&seq, &id, &arrived)
		if back[seq] = arrived || len(id) == 0; !back[seq] {
			delete(back, seq)
			column := database.Column(string(id))
			ids[column] = append(ids[column], seq)
		}
		return err
	}, `SELECT seq, id, CASE WHEN arrived_redrive_id <> '' OR arrived_letter <> '' THEN 1 ELSE 0 END
FROM spillway_dead_letters`+s.statements.byKey+` WHERE `+keys+` AND COALESCE(service, '') = ?`, append(args, asBytes(s.service))...)
	if err != nil || len(ids) == 0 {
		return back, wrapped("ask which letters came back", err)
	}
	w := new(where)
	w.and("kind = ?", s.db.Text(string(EventRedriven)))
	w.and("service = ?", asBytes(s.service))
	var messages []string
	for id := range ids {
		messages = append(messages, id)
	}
	anyIn(w, "message", messages, s.db.Text)
	err = s.rows(ctx, tx, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		for _, seq := range ids[id] {
			back[seq] = true
		}
		return err
	}, `SELECT DISTINCT message FROM spillway_letter_events`+w.String(), w.args...)
	return back, wrapped("ask which letters came back", err)
}

// rows reads within a transaction, or outside of one.
func (s *Store) rows(ctx context.Context, tx *sql.Tx, scan func(*sql.Rows) error, query string, args ...any) error {
	if tx == nil {
		return s.read(ctx, func() {}, scan, query, args...)
	}
	rows, err := tx.QueryContext(ctx, s.db.Statement(query), args...)
	if err != nil {
		return err
	}
	return database.Each(rows, scan)
}

// learnedOf is how many redrives of a cause Redriven learns of.
const learnedOf = 20

func (in *inner) Redriven(ctx context.Context, cause string, since time.Time) (map[string]inside.Outcome, error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	outcomes, open, err := s.redrivenOf(ctx, cause, since)
	for _, id := range open[:min(len(open), learnedOf)] {
		if err == nil {
			_, err = s.learn(ctx, Act{By: s.node, RedriveID: id})
		}
	}
	if err == nil && len(open) > 0 {
		outcomes, _, err = s.redrivenOf(ctx, cause, since)
	}
	return outcomes, wrapped("ask for redrives", err)
}

// redrivenOf returns the outcomes of the redrives of a cause, and those of which not all is known, the latest first.
func (s *Store) redrivenOf(ctx context.Context, cause string,
	since time.Time) (outcomes map[string]inside.Outcome, open []string, err error) {
	w := s.where(Filter{Causes: []string{cause}, Statuses: []Status{StatusWaiting, StatusRedriven, StatusSucceeded,
		StatusFailedAgain}})
	w.and("redrive_id <> '' AND marked_at > ?", since.UnixMicro())
	// a letter that a person put back has the id of that
	w.and("(status <> 'waiting' OR EXISTS (SELECT 1 FROM spillway_letter_events AS e WHERE e.redrive_id = spillway_dead_letters.redrive_id " +
		"AND e.redrive_id <> '' AND e.kind = 'redriven'))")
	err = s.read(ctx, func() { outcomes, open = make(map[string]inside.Outcome), nil }, func(rows *sql.Rows) error {
		var id string
		var o inside.Outcome
		err := rows.Scan(&id, &o.Redriven, &o.Succeeded, &o.FailedAgain)
		if outcomes[id] = o; o.Redriven > 0 {
			open = append(open, id)
		}
		return err
	}, `SELECT redrive_id, SUM(CASE status WHEN 'redriven' THEN 1 ELSE 0 END), SUM(CASE status WHEN 'succeeded' THEN 1 ELSE 0 END),
	SUM(CASE WHEN status IN ('failed_again', 'waiting') THEN 1 ELSE 0 END)
FROM spillway_dead_letters`+s.statements.byCause+w.String()+` GROUP BY redrive_id ORDER BY MAX(marked_at) DESC`, w.args...)
	return outcomes, open, err
}
