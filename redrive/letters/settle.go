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

// Settle gives claimed letters their new status, records act and ends their leases, in
// one transaction. It returns the Seqs of those that were settled: the leases of the others are lost. Without a status
// it ends the leases, and settles none. beside, unless it is nil, is called in the transaction with what Settle
// returns. After an error nothing was done.
func (s inner) Settle(ctx context.Context, status Status, act Act, beside func(*sql.Tx, []int64) error,
	claims ...claim) (settled []int64, err error) {
	n := 0
	for _, c := range claims {
		n += len(c.Letters)
	}
	if err := act.validate(); err != nil || n == 0 {
		return nil, wrapped("settle", err)
	}
	if n == 1 && beside == nil && status != "" && s.settling != nil {
		seqs := make([]int64, 1)
		is, err := s.SettleOne(ctx, status, act, claims[0], "\nSELECT seq FROM l", nil, &seqs[0])
		if is {
			settled = seqs
		}
		return settled, wrapped("settle", err)
	}
	err = s.writeLetters(ctx, n, func(tx *sql.Tx, t tally) (err error) {
		if status == "" {
			for _, c := range claims {
				err = errors.Join(err, s.releaseWithin(ctx, tx, seqsOf(c.Letters), c.Token))
			}
		} else {
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
	err = database.Each(ctx, tx, func(rows *sql.Rows) error {
		var seq int64
		var token string
		err := rows.Scan(&seq, &token)
		is[seq] = token == tokens[seq]
		return err
	}, s.db.Statement(`SELECT seq, token FROM spillway_dead_letters`+s.statements.byKey+
		` WHERE `+keys+` AND token <> '' ORDER BY seq`+s.lock()), args...)
	for _, l := range all {
		if is[l.Seq] {
			held = append(held, swept{subject: subjectOf(*l), cause: l.Cause, status: l.Status})
			is[l.Seq] = false // once, if it is listed twice
		}
	}
	return held, err
}

// settleStatement begins a statement that settles one letter: its row, which it has as l, its event, and the numbers of
// its cause. The server keeps its plan, which for many letters in arrays it would make anew.
func settleStatement(to Status) string {
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
	return `WITH c AS (SELECT ?::bigint AS seq, ?::text AS token, ?::text AS was, ?::text AS message),
	l AS (UPDATE spillway_dead_letters AS l
		SET status = '` + string(to) + `', token = '', leased_until = 0, marked_at = now_us(), marked_by = ?, marked_why = ?, redrive_id = ` + redriveID + `
		FROM c WHERE l.seq = c.seq AND l.token = decode(c.token, 'hex') AND l.token <> ''
		RETURNING l.seq, l.identity, l.cause, c.was, c.message),
	e AS (INSERT INTO spillway_letter_events (service, letter, identity, message, kind, at, actor, reason, redrive_id, detail)
		SELECT ?::bytea, seq, identity, message, '` + string(to.event()) + `', now_us(), ?::text, ?::text, ?::text, ?::text FROM l ORDER BY seq),
	n AS (` + countInto() + `SELECT ?::bytea, cause, ?::bigint, ` + strings.Join(counts, ", ") + `, 0, ` + strconv.Itoa(math.MaxInt64) + `, '` +
		strconv.Itoa(math.MinInt64) + `'::bigint, 0, 0, 0, 0 FROM l GROUP BY cause ORDER BY cause
		` + countsConflict.add() + `)`
}

// settleStatements are those of all states.
func settleStatements() map[Status]string {
	texts := make(map[Status]string)
	for _, status := range Statuses() {
		texts[status] = settleStatement(status)
	}
	return texts
}

// SettleOne is Settle of the one letter of c by one statement, in one round trip. The statement ends with also and its
// args: that finds the row of a settled letter in l. It reports whether also returned a row, which it read into dest.
// Only PostgreSQL has such a statement: elsewhere nothing is done.
func (s inner) SettleOne(ctx context.Context, status Status, act Act, c claim, also string, args []any,
	dest ...any) (is bool, err error) {
	l := c.Letters[0]
	switch {
	case s.settling == nil:
		return false, nil
	case s.db.Held(ctx):
		return false, errHeld
	}
	slot, requeue := s.slots.take()
	defer requeue()
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	all := append([]any{l.Seq, hex.EncodeToString([]byte(c.Token)), string(l.Status), database.Column(l.Original.UUID)},
		s.marks(act)...)
	all = append(all, asBytes(s.service), boundedtext.Text(act.By, maxBy), act.Reason, act.RedriveID,
		boundedtext.Text(act.Detail, maxDetail), asBytes(s.service), slot)
	err = s.own(s.db.Return(ctx, func() { is = false }, func(rows *sql.Rows) error { is = true; return rows.Scan(dest...) },
		s.db.Statement(s.settling[status]+also), append(all, args...)...))
	return is && err == nil, err
}
