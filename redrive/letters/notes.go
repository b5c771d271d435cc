package letters

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/inside"
)

// maxNotes bounds the notes that are read of a service, those that are snoozed longest first.
const maxNotes = 10_000

// noteRow is a note as it is in the table, and what decides about it.
type noteRow struct {
	inside.CauseNote
	cause                 string
	now, until, goneAt    int64 // by the database's clock, in microseconds
	noted, snoozed, woken int64
	rate                  int           // letters in the hour before the snooze
	first                 sql.NullInt64 // when the letter was stored that waits longest; none waits without
	hour                  int           // letters in the last hour, if it is snoozed
	grew                  bool          // and so it wakes, which is not written down yet
}

// Notes returns what persons say of causes, or of all causes of the service if none is named. It changes nothing: a
// snoozed cause that grew is awake, whether TendNotes has written that down or not.
func (s inner) Notes(ctx context.Context, causes ...string) (map[string]inside.CauseNote, error) {
	found := make(map[string]inside.CauseNote)
	for {
		some := causes[:min(len(causes), maxCauses)]
		rows, err := s.notes(ctx, some)
		if err != nil {
			return nil, wrapped("read the notes of causes", err)
		}
		for _, r := range rows {
			found[r.cause] = r.CauseNote
		}
		if causes = causes[len(some):]; len(causes) == 0 {
			return found, nil
		}
	}
}

// TendNotes is Notes for what works for the service by itself. It writes down, on record, that a snoozed cause woke, and
// deletes the note of a cause of which no letter was seen to wait for inside.NoteKept. What this process may not write
// another one does.
func (s inner) TendNotes(ctx context.Context) (map[string]inside.CauseNote, error) {
	rows, err := s.notes(ctx, nil)
	if err != nil {
		return nil, wrapped("read the notes of causes", err)
	}
	found := make(map[string]inside.CauseNote)
	for i := range rows {
		if r := &rows[i]; s.tend(ctx, r) {
			found[r.cause] = r.CauseNote
		}
	}
	return found, nil
}

// notes reads notes, with the numbers of those that are snoozed.
func (s *Store) notes(ctx context.Context, causes []string) (all []noteRow, err error) {
	w := new(where)
	w.and("n.service = ?", asBytes(s.service))
	anyIn(w, "n.cause", causes, s.readable)
	err = s.read(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		var r noteRow
		err := rows.Scan(&r.cause, &r.Note, &r.Owner, &r.Link, &r.NotedBy, &r.noted, &r.until, &r.SnoozedBy, &r.snoozed,
			&r.rate, &r.woken, &r.goneAt, &r.now, &r.first)
		r.NotedAt, r.SnoozedAt, r.WokenAt = fromMicro(r.noted), fromMicro(r.snoozed), fromMicro(r.woken)
		r.SnoozedUntil = fromMicro(r.until)
		r.Snoozed = r.until > r.now && r.woken == 0
		r.Known = r.first.Valid && r.noted > 0 && r.first.Int64 > r.noted
		all = append(all, r)
		return err
	}, `SELECT cause, note, owner, link, noted_by, noted_at, snoozed_until, snoozed_by, snoozed_at, snoozed_rate, woken_at, gone_at, now_us(),
	(SELECT d.stored_at FROM spillway_dead_letters AS d`+s.statements.byCause+`
	WHERE d.service = n.service AND d.status = 'waiting' AND d.cause = n.cause ORDER BY d.seq LIMIT 1)
FROM spillway_cause_notes AS n`+w.String()+` ORDER BY snoozed_until DESC, cause LIMIT ?`, append(w.args, maxNotes)...)
	if err != nil {
		return nil, err
	}
	snoozed := make([]*noteRow, 0, len(all))
	for i := range all {
		if all[i].Snoozed {
			snoozed = append(snoozed, &all[i])
		}
	}
	for some := range slices.Chunk(snoozed, MaxListed) {
		hashes := make([]string, len(some))
		for i, r := range some {
			hashes[i] = r.cause
		}
		arrived, err := inner{s}.Arrivals(ctx, hashes...)
		if err != nil {
			return nil, err
		}
		for i := range arrived {
			r := some[i]
			if r.hour = lastHour(arrived[i]); inside.Grew(r.hour, r.rate) {
				r.grew, r.Snoozed, r.WokenAt = true, false, fromMicro(r.now)
			}
		}
	}
	return all, nil
}

func lastHour(a inside.Arrivals) (n int) {
	for _, minute := range a.PerMinute {
		n += minute
	}
	return n
}

// tend looks after a note. It reports whether the note is still there.
func (s *Store) tend(ctx context.Context, r *noteRow) bool {
	about := []any{asBytes(s.service), s.db.Text(r.cause)}
	change := func(kind string, act Act, statement string, args ...any) {
		_ = s.write(ctx, func(tx *sql.Tx) error {
			result, err := s.exec(ctx, tx, statement, append(about, args...)...)
			if err != nil || kind == "" {
				return err
			}
			if n, err := result.RowsAffected(); err != nil || n == 0 { // another one was first
				return err
			}
			act.By, act.Detail = itself, "cause "+r.cause+": "+kind
			return s.record(ctx, tx, EventCause, act, subject{identity: []byte{}})
		})
	}
	const update, key = `UPDATE spillway_cause_notes SET `, ` WHERE service = ? AND cause = ?`
	if r.grew {
		change("woken", Act{Reason: fmt.Sprintf("it grew: %d letters in the last hour, %d in the hour before the snooze", r.hour, r.rate)},
			update+`woken_at = now_us()`+key+` AND snoozed_at = ? AND woken_at = 0`, r.snoozed)
	}
	switch waits := r.first.Valid; {
	case waits && r.goneAt == 0:
	case waits:
		change("", Act{}, update+`gone_at = 0`+key)
	case r.goneAt == 0:
		change("", Act{}, update+`gone_at = now_us()`+key+` AND gone_at = 0`)
	case r.now-max(r.goneAt, r.noted, r.snoozed) > inside.NoteKept.Microseconds():
		change("note deleted", Act{Reason: "no letter of the cause waits for 90 days"},
			`DELETE FROM spillway_cause_notes`+key+` AND gone_at = ?`, r.goneAt)
		return false
	}
	return true
}

// itself is Act.By of what no person did.
const itself = "spillway"

// ChangeNote changes what persons say of a cause, on record. It returns what is said now.
func (s inner) ChangeNote(ctx context.Context, cause string, c inside.CauseChange, act Act) (inside.CauseNote, error) {
	hour := 0
	if c.SnoozedUntil != nil {
		arrived, err := s.Arrivals(ctx, cause)
		if err != nil {
			return inside.CauseNote{}, err
		}
		hour = lastHour(arrived[0])
	}
	sets, args := s.noteSets(c, act.By, hour)
	act.Detail = c.Detail(cause)
	err := s.write(ctx, func(tx *sql.Tx) error {
		about := []any{asBytes(s.service), s.readable(cause)}
		known, noted, snoozed := 0, int64(0), int64(0)
		err := tx.QueryRowContext(ctx, s.db.Statement(`SELECT COUNT(*) FROM spillway_letter_causes WHERE service = ? AND cause = ?`),
			about...).Scan(&known)
		if err == nil && known == 0 {
			err = inside.ErrNoCause
		}
		if err == nil {
			_, err = s.exec(ctx, tx, `INSERT INTO spillway_cause_notes (service, cause, note, owner, link, noted_by, noted_at, snoozed_until,
	snoozed_by, snoozed_at, snoozed_rate, woken_at, gone_at) VALUES (?, ?, '', '', '', '', 0, 0, '', 0, 0, 0, 0) `+
				strings.ReplaceAll(s.statements.unless, "spillway_letter_causes", "spillway_cause_notes"), about...)
		}
		if err == nil {
			err = tx.QueryRowContext(ctx, s.db.Statement(`SELECT noted_at, snoozed_at FROM spillway_cause_notes WHERE service = ? AND cause = ?`+
				s.lock()), about...).Scan(&noted, &snoozed)
		}
		if err == nil && c.Seen != nil && (!fromMicro(noted).Equal(c.Seen.NotedAt) || !fromMicro(snoozed).Equal(c.Seen.SnoozedAt)) {
			err = inside.ErrNoteChanged
		}
		if err == nil {
			_, err = s.exec(ctx, tx, `UPDATE spillway_cause_notes SET `+strings.Join(sets, ", ")+` WHERE service = ? AND cause = ?`,
				slices.Concat(args, about)...)
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, EventCause, act, subject{identity: []byte{}})
	})
	if err != nil {
		return inside.CauseNote{}, wrapped("change the note of a cause", err)
	}
	all, err := s.Notes(ctx, cause)
	return all[cause], err
}

// noteSets are the columns that a change sets, with their values.
func (s *Store) noteSets(c inside.CauseChange, by string, hour int) (sets []string, args []any) {
	for _, field := range []struct {
		column string
		value  *string
	}{{"note", c.Note}, {"owner", c.Owner}, {"link", c.Link}} {
		if field.value != nil {
			sets, args = append(sets, field.column+" = ?"), append(args, s.db.Text(*field.value))
		}
	}
	if len(sets) > 0 {
		sets, args = append(sets, "noted_by = ?", "noted_at = now_us()"), append(args, s.readable(by))
	}
	if until := c.SnoozedUntil; until != nil {
		at := int64(0)
		if !until.IsZero() {
			at = until.UnixMicro()
		}
		sets = append(sets, "snoozed_until = ?", "snoozed_by = ?", "snoozed_at = now_us()", "snoozed_rate = ?", "woken_at = 0")
		args = append(args, at, s.readable(by), hour)
	}
	return sets, args
}

// ForgetNotes takes the values of a person from what persons said of causes, and from the record of that. It returns
// the number of notes that have such a value.
func (s inner) ForgetNotes(ctx context.Context, dryRun bool, values []string) (n int, err error) {
	rows, err := s.notes(ctx, nil)
	for _, r := range rows {
		is := [3]string{r.Note, r.Owner, r.Link}
		for i := range is {
			is[i] = boundedtext.Erased(is[i], values)
		}
		if err != nil || is == [3]string{r.Note, r.Owner, r.Link} {
			continue
		}
		if n++; dryRun {
			continue
		}
		_, err = s.db.Exec(ctx, s.db.Statement(`UPDATE spillway_cause_notes SET note = ?, owner = ?, link = ?
WHERE service = ? AND cause = ? AND noted_at = ?`), s.db.Text(is[0]), s.db.Text(is[1]), s.db.Text(is[2]), asBytes(s.service),
			s.db.Text(r.cause), r.noted)
	}
	if err == nil && !dryRun {
		err = s.write(ctx, func(tx *sql.Tx) error { return s.forgetTexts(ctx, tx, []int64{0}, values, EventCause) })
	}
	return n, wrapped("erase texts from the notes of causes", err)
}
