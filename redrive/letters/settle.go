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
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Settle gives claimed letters, at most MaxLimit, their new status, records act and ends their leases, in
// one transaction. It returns the Seqs of those that were settled: the leases of the others are lost. Without a status
// it ends the leases, and settles none. beside, unless it is nil, is called in the transaction with what Settle
// returns. After an error nothing was done.
func (in *inner) Settle(ctx context.Context, status Status, act Act, beside func(*sql.Tx, []int64) error,
	claims ...claim) (settled []int64, err error) {
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
	if err := act.validate(); err != nil {
		return nil, wrapped("settle", err)
	}
	if status != "" {
		err = status.settable()
	}
	if err != nil || n == 0 {
		return nil, wrapped("settle", err)
	}
	if n == 1 && beside == nil && status != "" && s.settling != nil {
		settled, err = s.settleOne(ctx, s.settling[status].one, act, claims)
		return settled, wrapped("settle", err)
	}
	err = s.writeLetters(ctx, n, func(tx *sql.Tx, t tally) (err error) {
		switch {
		case status == "":
			for _, c := range claims {
				err = errors.Join(err, s.releaseWithin(ctx, tx, seqsOf(c.Letters), c.Token))
			}
		case s.settling != nil:
			settled, err = s.settleAtOnce(ctx, tx, s.settling[status], act, claims)
		default:
			settled, err = s.settleHeld(ctx, tx, t, status, act, claims)
		}
		if err == nil && beside != nil {
			err = beside(tx, settled)
		}
		return err
	})
	if err != nil {
		return nil, wrapped(fmt.Sprintf("settle %d letter(s)", n), err)
	}
	return settled, nil
}

func (s *Store) releaseWithin(ctx context.Context, tx *sql.Tx, seqs []int64, token string) error {
	keys, args := s.among(seqs)
	_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters`+s.statements.byKey+` SET token = '', leased_until = 0 WHERE `+
		keys+` AND token = ? AND token <> ''`, append(args, s.db.Bytes(token))...)
	return err
}

func (s *Store) settleHeld(ctx context.Context, tx *sql.Tx, t tally, status Status, act Act,
	claims []claim) (settled []int64, err error) {
	held, err := s.held(ctx, tx, claims)
	for _, l := range held {
		settled = append(settled, l.seq)
	}
	if err != nil || len(held) == 0 {
		return nil, err
	}
	return settled, s.setStatus(ctx, tx, t, held, status, act)
}

// held returns those letters of claims whose leases are held, and locks them. They are as they were when they were
// leased: whatever changes a letter ends its lease.
func (s *Store) held(ctx context.Context, tx *sql.Tx, claims []claim) (held []swept, err error) {
	var all []*Letter
	tokens := make(map[int64]string)
	for _, c := range claims {
		for _, l := range c.Letters {
			all, tokens[l.Seq] = append(all, l), c.Token
		}
	}
	keys, args := s.among(seqsOf(all))
	is := make(map[int64]bool, len(all))
	rows, err := s.prepared.of(ctx, tx, s.db.Statement(s.heldStatement(keys))).query(ctx, args...)
	if err != nil {
		return nil, err
	}
	err = database.Each(rows, func(rows *sql.Rows) error {
		var seq int64
		var token string
		err := rows.Scan(&seq, &token)
		is[seq] = token == tokens[seq]
		return err
	})
	for _, l := range all {
		if is[l.Seq] {
			held = append(held, swept{subject: subjectOf(*l), cause: l.Cause, status: l.Status})
			is[l.Seq] = false // once, if it is listed twice
		}
	}
	return held, err
}

func (s *Store) heldStatement(keys string) string {
	return `SELECT seq, token FROM spillway_dead_letters` + s.statements.byKey + ` WHERE ` + keys +
		` AND token <> '' ORDER BY seq` + s.lock()
}

// settlingOne are the statements that mark one redriven letter, for Store.prepared.
func (s *Store) settlingOne() (texts []string) {
	keys, _ := s.among([]int64{0})
	for _, text := range []string{s.heldStatement(keys), s.statusStatement(StatusRedriven, keys),
		recordStatement(StatusRedriven.event(), 1)} {
		texts = append(texts, s.db.Statement(text))
	}
	return texts
}

// settling are the statements that settle letters: their rows, their events and the numbers of their causes. The first
// arguments of one are the letter's Seq, its token in hex, the status that it had when it was leased, and the id of its
// message as events have it. Those of many are arrays of these. One letter has a statement of its own, because the
// server keeps its plan: with arrays it plans anew for their lengths, which takes longer than the statement.
type settling struct{ one, many string }

const (
	settleOne  = `SELECT ?::bigint AS seq, ?::text AS token, ?::text AS was, ?::text AS message`
	settleMany = `SELECT * FROM unnest(?::text::bigint[], ?::text::text[], ?::text::text[], ?::text::text[]) AS c (seq, token, was, message)`
)

func settleStatement(u upsert, to Status, claimed string) string {
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
	return `WITH c AS (` + claimed + `),
	l AS (UPDATE spillway_dead_letters AS l
		SET status = '` + string(to) + `', token = '', leased_until = 0, marked_at = now_us(), marked_by = ?, marked_why = ?, redrive_id = ` + redriveID + `
		FROM c WHERE l.seq = c.seq AND l.token = decode(c.token, 'hex') AND l.token <> ''
		RETURNING l.seq, l.identity, l.cause, c.was, c.message),
	e AS (INSERT INTO spillway_letter_events (service, letter, identity, message, kind, at, actor, reason, redrive_id, detail)
		SELECT ?::bytea, seq, identity, message, '` + string(to.event()) + `', now_us(), ?::text, ?::text, ?::text, ?::text FROM l ORDER BY seq),
	n AS (` + countInto() + `SELECT ?::bytea, cause, ?::bigint, ` + strings.Join(counts, ", ") + `, 0, ` + strconv.Itoa(math.MaxInt64) + `, '` +
		strconv.Itoa(math.MinInt64) + `'::bigint, 0, 0, 0, 0 FROM l GROUP BY cause ORDER BY cause
		` + u.add() + `)
SELECT seq FROM l`
}

// settleStatements are those of all states.
func settleStatements(statement func(string) string) map[Status]settling {
	texts := make(map[Status]settling)
	for _, status := range Statuses() {
		texts[status] = settling{statement(settleStatement(countsConflict, status, settleOne)),
			statement(settleStatement(countsConflict, status, settleMany))}
	}
	return texts
}

// settleArgs are the arguments of both statements.
func (s *Store) settleArgs(act Act, slot int, claims []claim) (one, many []any) {
	var seqs, tokens, was, messages array
	for _, c := range claims {
		token := hex.EncodeToString([]byte(c.Token))
		for _, l := range c.Letters {
			message := database.Column(l.Original.UUID)
			one = []any{l.Seq, token, string(l.Status), message}
			seqs.add(strconv.FormatInt(l.Seq, 10))
			tokens.add(token)
			was.add(string(l.Status))
			messages.add(message)
		}
	}
	more := append(s.marks(act), asBytes(s.service), boundedtext.Text(act.By, maxBy), act.Reason, act.RedriveID,
		boundedtext.Text(act.Detail, maxDetail), asBytes(s.service), slot)
	return append(one, more...), append([]any{seqs.text(), tokens.text(), was.text(), messages.text()}, more...)
}

// settleOne is Settle of one letter in one round trip.
func (s *Store) settleOne(ctx context.Context, text string, act Act, claims []claim) (settled []int64, err error) {
	slot, requeue := s.slots.take()
	defer requeue()
	args, _ := s.settleArgs(act, slot, claims)
	err = s.writeOne(ctx, func() { settled = nil }, func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		settled = append(settled, seq)
		return err
	}, text, args...)
	return settled, err
}

// settleAtOnce is Settle in one statement.
func (s *Store) settleAtOnce(ctx context.Context, tx *sql.Tx, texts settling, act Act,
	claims []claim) ([]int64, error) {
	slot, requeue := s.slots.take()
	defer requeue()
	one, many := s.settleArgs(act, slot, claims)
	if len(claims) == 1 && len(claims[0].Letters) == 1 {
		return s.seqs(ctx, tx, texts.one, one...)
	}
	return s.seqs(ctx, tx, texts.many, many...)
}

// writeOne runs one statement that writes and returns rows, outside of a transaction.
func (s *Store) writeOne(ctx context.Context, reset func(), scan func(*sql.Rows) error, text string,
	args ...any) error {
	if s.db.Held(ctx) {
		return errHeld
	}
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return s.own(s.db.Return(ctx, reset, scan, text, args...))
}

var quoteArray = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// array is a PostgreSQL array as text, which every driver can bind.
type array struct{ strings.Builder }

func (a *array) add(value string) {
	_, _ = a.WriteString(map[bool]string{true: `{"`, false: `,"`}[a.Len() == 0])
	_, _ = quoteArray.WriteString(a, value)
	_ = a.WriteByte('"')
}

func (a *array) text() string { return a.String() + "}" }
