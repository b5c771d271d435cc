package letters

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/database"
)

func (in *inner) Settle(ctx context.Context, status Status, act Act, claims ...claim) (settled []Letter, err error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	n := 0
	for _, c := range claims {
		n += len(c.Letters)
	}
	if n > MaxLimit {
		return nil, fmt.Errorf("letters: settle %d letters: at most %d are possible: use several calls", n, MaxLimit)
	}
	if err := errors.Join(status.settable(), act.validate()); err != nil {
		return nil, wrapped("settle", err)
	}
	if n == 0 {
		return nil, nil
	}
	if text := s.settling[status]; text != "" {
		settled, err = s.settleAtOnce(ctx, n, text, status, act, claims)
	} else {
		err = s.writeLetters(ctx, n, func(tx *sql.Tx, t tally) (err error) {
			if settled, err = s.held(ctx, tx, claims); err != nil || len(settled) == 0 {
				return err
			}
			return s.setStatus(ctx, tx, t, sweptOf(settled), status, act)
		})
	}
	if err != nil {
		return nil, wrapped(fmt.Sprintf("settle %d letter(s)", n), err)
	}
	return settled, nil
}

// held returns those letters of claims whose leases are held, and locks them. They are as they were when they were
// leased, but for the cause of a letter of an earlier version: whatever else changes a letter ends its lease.
func (s *Store) held(ctx context.Context, tx *sql.Tx, claims []claim) (held []Letter, err error) {
	var all []Letter
	tokens := make(map[int64]string)
	for _, c := range claims {
		for _, l := range c.Letters {
			all, tokens[l.Seq] = append(all, l), c.Token
		}
	}
	keys, args := amongSeqs(seqsOf(all))
	causes := make(map[int64]string, len(all))
	rows, err := tx.QueryContext(ctx,
		s.db.Statement(`SELECT seq, token, cause FROM spillway_dead_letters`+s.statements.byKey+` WHERE `+keys+
			` AND token <> '' ORDER BY seq`+s.lock()), args...)
	if err != nil {
		return nil, err
	}
	err = database.Each(rows, func(rows *sql.Rows) error {
		var seq int64
		var token, cause string
		err := rows.Scan(&seq, &token, &cause)
		if token == tokens[seq] {
			causes[seq] = cause
		}
		return err
	})
	for _, l := range all {
		if cause, is := causes[l.Seq]; is {
			l.Cause = cause
			held = append(held, l)
			delete(causes, l.Seq) // once, if it is listed twice
		}
	}
	return held, err
}

// sweptOf are letters under a lease as a change of their status takes them.
func sweptOf(letters []Letter) []swept {
	all := make([]swept, len(letters))
	for i, l := range letters {
		all[i] = swept{subject: subjectOf(l), cause: l.Cause, status: l.Status}
	}
	return all
}

// settleStatement settles letters in one statement: their rows, their events and the numbers of their causes. Its first
// arguments are arrays: of Seqs, tokens in hex, the states that the letters had when they were leased, and the ids of their
// messages as events have them.
func settleStatement(u upsert, to Status) string {
	counts := make([]string, 0, len(Statuses()))
	for _, status := range Statuses() {
		n := `- COUNT(*) FILTER (WHERE was = '` + string(status) + `')`
		if status == to {
			n += ` + COUNT(*)`
		}
		counts = append(counts, n)
	}
	redriveID := `?`
	if ofItsRedrive(to) {
		redriveID = `COALESCE(NULLIF(?, ''), l.redrive_id)`
	}
	return `WITH c AS (SELECT * FROM unnest(?::text::bigint[], ?::text::text[], ?::text::text[], ?::text::text[]) AS c (seq, token, was, message)),
	l AS (UPDATE spillway_dead_letters AS l
		SET status = '` + string(to) + `', token = '', leased_until = 0, marked_at = now_us(), marked_by = ?, marked_why = ?, redrive_id = ` + redriveID + `
		FROM c WHERE l.seq = c.seq AND l.token = decode(c.token, 'hex') AND l.token <> ''
		RETURNING l.seq, l.identity, l.cause, c.was, c.message),
	e AS (INSERT INTO spillway_letter_events (service, letter, identity, message, kind, at, actor, reason, redrive_id, detail)
		SELECT ?::bytea, seq, identity, message, '` + string(to.event()) + `', now_us(), ?::text, ?::text, ?::text, ?::text FROM l ORDER BY seq),
	n AS (` + countInto() + `SELECT ?::bytea, cause, ?::bigint, ` + strings.Join(counts, ", ") + `, 0, ` + strconv.Itoa(math.MaxInt64) + `, '` +
		strconv.Itoa(math.MinInt64) + `'::bigint, 0, 0, 0, 0 FROM l WHERE cause <> '' GROUP BY cause ORDER BY cause
		` + u.add() + `)
SELECT seq, cause FROM l`
}

// settleStatements are those of all states.
func settleStatements(statement func(string) string) map[Status]string {
	texts := make(map[Status]string)
	for _, status := range Statuses() {
		texts[status] = statement(settleStatement(countsConflict, status))
	}
	return texts
}

// settleAtOnce is Settle in one statement, and for one letter in one round trip.
func (s *Store) settleAtOnce(ctx context.Context, n int, text string, status Status, act Act,
	claims []claim) (settled []Letter, err error) {
	var all []Letter
	var seqs, tokens, was, messages []string
	for _, c := range claims {
		for _, l := range c.Letters {
			all = append(all, l)
			seqs, tokens = append(seqs, strconv.FormatInt(l.Seq, 10)), append(tokens, hex.EncodeToString([]byte(c.Token)))
			was, messages = append(was, string(l.Status)), append(messages, database.Column(l.Original.UUID))
		}
	}
	slot, giveBack := s.slots.take()
	defer giveBack()
	args := append([]any{array(seqs), array(tokens), array(was), array(messages)}, s.marks(act)...)
	args = append(args, asBytes(s.service), boundedtext.Text(act.By, maxBy), act.Reason, act.RedriveID,
		boundedtext.Text(act.Detail, maxDetail), asBytes(s.service), slot)
	causes := make(map[int64]string, n)
	scan := func(rows *sql.Rows) error {
		var seq int64
		var cause string
		err := rows.Scan(&seq, &cause)
		causes[seq] = cause
		return err
	}
	if n == 1 {
		err = s.writeOne(ctx, func() { clear(causes) }, scan, text, args...)
	} else {
		err = s.write(ctx, func(tx *sql.Tx) error {
			clear(causes)
			if _, err := tx.ExecContext(ctx, s.statements.several); err != nil {
				return err
			}
			rows, err := tx.QueryContext(ctx, text, args...)
			if err != nil {
				return err
			}
			return database.Each(rows, scan)
		})
	}
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if cause, is := causes[l.Seq]; is {
			l.Cause = cause
			settled = append(settled, l)
			delete(causes, l.Seq) // once, if it is listed twice
		}
	}
	return settled, nil
}

// writeOne runs one statement that writes and returns rows, outside of a transaction.
func (s *Store) writeOne(ctx context.Context, reset func(), scan func(*sql.Rows) error, text string, args ...any) error {
	if s.db.Held(ctx) {
		return errHeld
	}
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return s.db.Return(ctx, reset, scan, text, args...)
}

var quoteArray = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array is a PostgreSQL array as text, which every driver can bind.
func array(values []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, value := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = quoteArray.WriteString(&b, value)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
