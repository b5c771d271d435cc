package letters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// sweepAtOnce is how many letters one transaction of MarkAll or Purge changes: few, so that live traffic does not wait.
const sweepAtOnce = 200

// swept is a letter that a sweep has locked.
type swept struct {
	subject
	cause  string
	status Status
	body   int64
}

// sweep calls change with the letters that f chooses and that are there when it starts, in small transactions. It
// leaves out letters that have a lease, and those that another transaction is writing. It returns how many it changed,
// also with an error. It calls rest, unless that is nil, after each transaction with the time that it took.
func (s *Store) sweep(ctx context.Context, f Filter, change func(*sql.Tx, tally, []swept) error,
	rest func(context.Context, time.Duration)) (n int, err error) {
	if f.Limit != 0 {
		return 0, errors.New("Filter.Limit pages through lists: leave it out")
	}
	if f.MaxSeq == 0 {
		if f.MaxSeq, err = s.lastSeq(ctx); err != nil || f.MaxSeq == 0 {
			return 0, err
		}
	}
	for {
		chosen, err := s.choose(ctx, f, true, sweepAtOnce, math.MaxInt, true)
		if err != nil || len(chosen.seqs) == 0 {
			return n, err
		}
		f.After = chosen.seqs[len(chosen.seqs)-1]
		some, began := 0, time.Now()
		err = s.writeLetters(ctx, len(chosen.seqs), func(tx *sql.Tx, t tally) error {
			letters, err := s.lockFree(ctx, tx, f, chosen.seqs)
			if some = len(letters); err != nil || some == 0 {
				return err
			}
			return change(tx, t, letters)
		})
		if err != nil {
			return n, err
		}
		if n += some; rest != nil {
			rest(ctx, time.Since(began))
		}
	}
}

// lockFree returns those of the letters that f still chooses, that have no lease, and that no other transaction is
// writing.
func (s *Store) lockFree(ctx context.Context, tx *sql.Tx, f Filter, seqs []int64) (letters []swept, err error) {
	f.After, f.MaxSeq = 0, 0
	w := s.freeByKey(f, seqs)
	err = database.Each(ctx, tx, func(rows *sql.Rows) error {
		var l swept
		err := rows.Scan(&l.seq, &l.identity, &l.id, &l.storedAt, &l.cause, &l.status, &l.body)
		letters = append(letters, l)
		return err
	}, s.db.Statement(`SELECT seq, identity, id, stored_at, cause, status, `+bodyOf+` AS its_body
FROM spillway_dead_letters`+s.statements.byKey+w.String()+` ORDER BY seq`+s.db.SkipLocked()), w.args...)
	return letters, err
}

// MarkAll gives all letters that f chooses, and that are there when it starts, another status. It takes small
// transactions, and can be called again after an error. It leaves out letters that have a lease or the status already,
// or that were erased. It returns how many it changed, also with an error. A redrive publishes letters first: see
// package redrive.
func (s *Store) MarkAll(ctx context.Context, f Filter, status Status, act Act) (n int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := errors.Join(f.validateInOrder(), status.settable(), act.validate()); err != nil {
		return 0, wrapped("mark all", err)
	}
	n, err = s.sweep(ctx, f, func(tx *sql.Tx, t tally, letters []swept) error {
		return s.move(ctx, tx, t, letters, status, act)
	}, nil)
	return n, wrapped(fmt.Sprintf("mark all, after %d", n), err)
}

// move gives letters that are locked their new status, those that do not have it.
func (s *Store) move(ctx context.Context, tx *sql.Tx, t tally, letters []swept, status Status, act Act) error {
	letters = slices.DeleteFunc(letters, func(l swept) bool { return l.status == status || l.status == StatusErased })
	if len(letters) == 0 {
		return nil
	}
	return s.setStatus(ctx, tx, t, letters, status, act)
}

// setStatus gives letters that are locked a status, ends their leases, and records it.
func (s *Store) setStatus(ctx context.Context, tx *sql.Tx, t tally, letters []swept, status Status, act Act) error {
	about, seqs := make([]subject, len(letters)), make([]int64, len(letters))
	for i, l := range letters {
		t.moved(l.cause, l.status, status)
		about[i], seqs[i] = l.subject, l.seq
	}
	redriveID := `?`
	if ofItsRedrive(status) {
		redriveID = `COALESCE(NULLIF(?, ''), redrive_id)`
	}
	keys, args := s.among(seqs)
	_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters`+s.statements.byKey+`
SET status = ?, token = '', leased_until = 0, marked_at = now_us(), marked_by = ?, marked_why = ?, redrive_id = `+redriveID+` WHERE `+keys,
		append(append([]any{s.db.Text(string(status))}, s.marks(act)...), args...)...)
	if err != nil {
		return err
	}
	return s.record(ctx, tx, status.event(), act, about...)
}

// ofItsRedrive reports whether the status says what became of the redrive that was.
func ofItsRedrive(s Status) bool { return s == StatusSucceeded || s == StatusFailedAgain }

const maxWhy = 255 // bytes: the column of MySQL

// marks are what a letter's row keeps of an act.
func (s *Store) marks(act Act) []any {
	return []any{s.db.Bytes(act.By[:min(len(act.By), maxBy)]), s.db.Text(boundedtext.Text(act.Reason, maxWhy)),
		s.db.Text(act.RedriveID)}
}

// Purge deletes the letters that f chooses and that are there when it starts, with their metadata and payloads. Their
// events stay, and their arrivals become events. Filter.Statuses must name the states of letters to delete;
// Filter.Until bounds the age. Purge takes small transactions, beside other traffic, and can be called again after an
// error. It leaves out letters that have a lease. It returns how many it deleted, also with an error.
func (s *Store) Purge(ctx context.Context, f Filter, act Act) (n int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := errors.Join(f.validateInOrder(), act.validate()); err != nil {
		return 0, wrapped("purge", err)
	}
	if len(f.Statuses) == 0 {
		return 0, errors.New("letters: purge: Filter.Statuses is empty: name the states of the letters to delete, such as " +
			"StatusSucceeded")
	}
	n, err = s.purge(ctx, f, act, nil)
	return n, wrapped(fmt.Sprintf("purge, after %d", n), err)
}

func (s *Store) purge(ctx context.Context, f Filter, act Act,
	rest func(context.Context, time.Duration)) (n int, err error) {
	return s.sweep(ctx, f, func(tx *sql.Tx, t tally, letters []swept) error {
		about, seqs, bodies := make([]subject, len(letters)), make([]int64, len(letters)), make([]int64, len(letters))
		var stored []subject // of an erased letter the arrival is an event already
		for i, l := range letters {
			about[i], seqs[i], bodies[i] = l.subject, l.seq, l.body
			if l.status != StatusErased {
				stored = append(stored, l.subject)
			}
			t.moved(l.cause, l.status, "")
		}
		w := new(where)
		anyIn(w, "body", bodies, func(body int64) any { return body })
		if _, err := s.exec(ctx, tx, `DELETE FROM spillway_letter_bodies`+w.String(), w.args...); err != nil {
			return err
		}
		keys, args := s.among(seqs)
		if _, err := s.exec(ctx, tx, `DELETE FROM spillway_dead_letters WHERE `+keys, args...); err != nil {
			return err
		}
		if err := s.record(ctx, tx, EventStored, Act{}, stored...); err != nil {
			return err
		}
		return s.record(ctx, tx, EventPurged, act, about...)
	}, rest)
}
