package letters

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Erase keeps the rows, with StatusErased, their topics, handlers, times and ids, until Purge. f must have a field that
// chooses letters; without Statuses it chooses letters of every state. The events of the letters stay, and say who
// erased them and why. The detail of EventEdited is replaced, because an edit can carry values. Only this, Texts and
// ForgetIDs need a role that may UPDATE events.
//
// Erase takes transactions of at most 200 letters, beside other traffic. A letter is erased as a whole or not at all.
// Erase can be called again after an error, and goes on where it ended. It returns what it did, also with an error. A
// letter that arrives again later is a new letter.
//
// The database may keep old versions of rows for a while: see docs/privacy.md.
func (s inner) Erase(ctx context.Context, f Filter, act Act, options inside.EraseOptions) (done inside.Erased,
	err error) {
	if err := errors.Join(f.validateInOrder(), act.validate()); err != nil {
		return done, wrapped("erase", err)
	}
	if err := f.forErase(); err != nil {
		return done, wrapped("erase", err)
	}
	for f.Limit = sweepAtOnce; ; {
		some, err := s.Heads(ctx, f)
		seqs, ids := named(some)
		if err == nil && len(some) > 0 && options.Before != nil {
			err = options.Before(ctx, seqs, ids)
		}
		if err == nil && len(some) == 0 && options.ForgetIDs && !options.DryRun {
			err = s.forgetIDs(ctx, f.IDs)
		}
		if err != nil || len(some) == 0 {
			return done, wrapped(fmt.Sprintf("erase, after %d", done.Letters), err)
		}
		f.After = some[len(some)-1].Seq
		n := 0
		for _, h := range some {
			if h.LeasedUntil.IsZero() {
				n++
			}
		}
		if !options.DryRun {
			n, err = s.eraseSome(ctx, f, seqs, act, &options)
		}
		if err != nil {
			return done, wrapped(fmt.Sprintf("erase, after %d", done.Letters), err)
		}
		done.Letters, done.InHand = done.Letters+n, done.InHand+len(some)-n
		if options.Progress != nil {
			options.Progress(done)
		}
	}
}

func named(some []Head) (seqs []int64, messageIDs []string) {
	for _, h := range some {
		seqs, messageIDs = append(seqs, h.Seq), append(messageIDs, h.MessageID)
	}
	return seqs, messageIDs
}

// forErase makes f choose letters of every state, unless it names states.
func (f *Filter) forErase() error {
	if f.Limit != 0 {
		return errors.New("Filter.Limit pages through lists: leave it out")
	}
	if reflect.DeepEqual(*f, Filter{Statuses: f.Statuses, After: f.After, MaxSeq: f.MaxSeq}) {
		return errors.New("the Filter chooses every letter: set IDs, Metadata, or another field")
	}
	if len(f.Statuses) == 0 {
		f.Statuses = Statuses()
	}
	present, any := f.present()
	if *f = present; !any {
		return errors.New("Filter.Statuses is StatusErased alone: these letters are erased already")
	}
	return nil
}

// eraseSome erases in one transaction those of the letters that f still chooses and that are free.
func (s *Store) eraseSome(ctx context.Context, f Filter, seqs []int64, act Act,
	options *inside.EraseOptions) (n int, err error) {
	err = s.writeLetters(ctx, len(seqs), func(tx *sql.Tx, t tally) error {
		letters, err := s.lockFree(ctx, tx, f, seqs)
		if n = len(letters); err != nil || n == 0 {
			return err
		}
		var bodies, named []int64
		for _, l := range letters {
			bodies, named = append(bodies, l.body), append(named, l.seq, l.body)
		}
		w := new(where)
		anyIn(w, "body", bodies, func(body int64) any { return body })
		if _, err := s.exec(ctx, tx, `DELETE FROM spillway_letter_bodies`+w.String(), w.args...); err != nil {
			return err
		}
		if err := s.forgetTexts(ctx, tx, named, options.Texts); err != nil {
			return err
		}
		about := make([]subject, n)
		for i, l := range letters {
			t.moved(l.cause, l.status, StatusErased)
			if options.ForgetIDs {
				if l.id, err = s.forgetID(ctx, tx, l.id); err != nil {
					return err
				}
			}
			if err := s.eraseRow(ctx, tx, l, act); err != nil {
				return err
			}
			about[i] = l.subject
		}
		if err := s.record(ctx, tx, EventStored, Act{}, about...); err != nil {
			return err
		}
		return s.record(ctx, tx, EventErased, act, about...)
	})
	return n, err
}

// eraseRow empties the row of a letter. The identity is made of the payload and the metadata: a new one leads to
// nothing, and the same letter that arrives again is another row.
func (s *Store) eraseRow(ctx context.Context, tx *sql.Tx, l swept, act Act) error {
	identity := make([]byte, sha256.Size)
	_, _ = rand.Read(identity) // never fails
	_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters SET identity = ?, id = ?, description = ?, size = 0, seal_key = '', arrived_letter = '',
	status = 'erased', token = '', leased_until = 0, marked_at = now_us(), marked_by = ?, marked_why = ?, redrive_id = COALESCE(NULLIF(?, ''), redrive_id) WHERE seq = ?`,
		append(append([]any{identity, asBytes(string(l.id)), s.db.Bytes("")}, s.marks(act)...), l.seq)...)
	return err
}

// forgetTexts empties the details of the edits of letters, and takes texts from what else is on record of them. Only if
// there are some the role must be able to change events.
func (s *Store) forgetTexts(ctx context.Context, tx *sql.Tx, seqs []int64, texts []string,
	kinds ...EventKind) error {
	w := new(where)
	anyIn(w, "letter", slices.Compact(slices.Sorted(slices.Values(seqs))), func(seq int64) any { return seq })
	w.and("service = ?", asBytes(s.service))
	w.and("(reason <> '' OR detail <> '')")
	anyIn(w, "kind", kinds, func(kind EventKind) any { return s.db.Text(string(kind)) })
	type event struct {
		number         int64
		reason, detail string
	}
	var changed []event
	err := database.Each(ctx, tx, func(rows *sql.Rows) error {
		var was event
		var kind EventKind
		err := rows.Scan(&was.number, &kind, &was.reason, &was.detail)
		is := event{was.number, boundedtext.Erased(was.reason, texts), boundedtext.Erased(was.detail, texts)}
		if kind == EventEdited && was.detail != "" {
			is.detail = boundedtext.ErasedWord
		}
		if is != was {
			changed = append(changed, is)
		}
		return err
	}, s.db.Statement(`SELECT event, kind, reason, detail FROM spillway_letter_events`+w.String()), w.args...)
	for _, e := range changed {
		if err == nil {
			_, err = s.exec(ctx, tx, `UPDATE spillway_letter_events SET reason = ?, detail = ? WHERE event = ?`,
				s.db.Text(e.reason), s.db.Text(e.detail), e.number)
		}
	}
	return err
}

// forgetID replaces the id of a message in its events, and returns what takes its place.
func (s *Store) forgetID(ctx context.Context, tx *sql.Tx, id []byte) ([]byte, error) {
	if len(id) == 0 || isForgotten(id) {
		return id, nil
	}
	hash := forgottenID(string(id))
	_, err := s.exec(ctx, tx, `UPDATE spillway_letter_events SET message = ? WHERE service = ? AND message = ?`,
		s.db.Text(hash), asBytes(s.service), s.db.Text(database.Column(string(id))))
	return []byte(hash), err
}

// forgetIDs is forgetID for messages without a letter, about which a person decided in the order of their key.
func (s *Store) forgetIDs(ctx context.Context, ids []string) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		for _, id := range ids {
			if _, err := s.forgetID(ctx, tx, []byte(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

const forgotten = "erased:"

func isForgotten(id []byte) bool {
	_, err := hex.DecodeString(string(id[min(len(id), len(forgotten)):]))
	return err == nil && len(id) == len(forgotten)+32 && string(id[:len(forgotten)]) == forgotten
}

// forgottenID is what EraseOptions.ForgetIDs puts in the place of the id of a message: the word erased and a hash.
// EventFilter finds events by it.
func forgottenID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return forgotten + hex.EncodeToString(sum[:16])
}

// RecordErasure writes the event erasure: a program erased a person's data, or is about to. act.Detail says by what
// it looked for them, without a value of the person, and what it found.
func (s inner) RecordErasure(ctx context.Context, act Act) error {
	return s.recordAlone(ctx, "record an erasure", EventErasure, act)
}
