package letters

import (
	"context"
	"database/sql"
	"errors"
	"math/bits"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/batcher"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// What one statement takes of letters that are published at the same time.
const (
	togetherRows  = 64
	togetherBytes = 1 << 20
	togetherWait  = 5 * time.Second // then each letter goes alone
)

// newBatcher batches letters that are published at the same time by different callers.
func (s *Store) newBatcher() *batcher.Batcher[*record] {
	most := togetherBytes
	if limit := s.db.Largest(); limit > 0 {
		most = min(most, limit/4) // a driver may double values by escaping
	}
	together := map[database.Kind]func(context.Context, []*record) (stored map[string]bool, err error){
		database.SQLite: s.storeInTurn, database.Postgres: s.storeManyFresh, database.MySQL: s.storeManyRows,
	}[s.db.Kind()]
	return batcher.New(batcher.Config[*record]{
		Rows: togetherRows, Bytes: most, Lanes: batcher.Lanes(s.db.Kind() == database.SQLite), Timeout: togetherWait,
		Together: func(ctx context.Context, records []*record) (leftOut []int, err error) {
			stored, err := together(ctx, firstOfEach(records))
			for i, r := range records {
				if stored[string(r.identity)] {
					delete(stored, string(r.identity)) // one that is the same arrives again
				} else {
					leftOut = append(leftOut, i)
				}
			}
			return leftOut, err
		},
	})
}

// firstOfEach returns the records without those that are the same letter as one before.
func firstOfEach(records []*record) (first []*record) {
	seen := make(map[string]bool, len(records))
	for _, r := range records {
		if !seen[string(r.identity)] {
			seen[string(r.identity)] = true
			first = append(first, r)
		}
	}
	return first
}

func identitiesOf(records []*record) map[string]bool {
	all := make(map[string]bool, len(records))
	for _, r := range records {
		all[string(r.identity)] = true
	}
	return all
}

// storeInTurn stores letters one after the other in one transaction: on SQLite a statement costs no round trip.
func (s *Store) storeInTurn(ctx context.Context, records []*record) (map[string]bool, error) {
	all := make([]record, len(records))
	for i, r := range records {
		all[i] = *r
	}
	return identitiesOf(records), s.storeAll(ctx, all)
}

// storeManyFresh stores and counts letters that are new in one statement, in the order in which they came. It does
// nothing about letters that are there.
func (s *Store) storeManyFresh(ctx context.Context, records []*record) (stored map[string]bool, err error) {
	slot, giveBack := s.slots.take()
	defer giveBack()
	now := time.Now()
	size := bits.Len(uint(len(records) - 1)) // few sizes, so that drivers and servers keep few statements
	args := make([]any, 0, (1<<size)*freshColumns+3)
	for _, r := range records {
		args = append(append(args, r.args(now, s.db)...), r.metadata, r.payload())
	}
	args = append(args, make([]any, ((1<<size)-len(records))*freshColumns)...)
	args = append(args, []byte(s.service), slot, now.Unix()/60)
	rows, err := s.db.DB().QueryContext(ctx, s.manyFresh[size], args...)
	if err != nil {
		return nil, err
	}
	stored = make(map[string]bool, len(records))
	err = database.Each(rows, func(rows *sql.Rows) error {
		var identity []byte
		err := rows.Scan(&identity)
		stored[string(identity)] = true
		return err
	})
	return stored, err
}

// freshColumns are the columns of a letter and of its body, by their types in PostgreSQL.
const freshColumns = 21

const freshRow = `(?::bytea, ?::bytea, ?::bytea, ?::bytea, ?::bytea, ?::text, ?::bytea, ?::bytea, ?::bytea, ?::bytea,
	?::bigint, ?::bigint, ?::bigint, ?::bytea, ?::text, ?::bigint, ?::bytea, ?::text, ?::text, ?::bytea, ?::bytea)`

// manyFreshStatement is freshStatement for several letters that are different. It returns the identities of those that
// it stored.
func manyFreshStatement(rows int) string {
	return `WITH v (` + insertColumns + `, metadata, payload) AS (VALUES ` + freshRow + strings.Repeat(`, `+freshRow, rows-1) + `),
	l AS (INSERT INTO spillway_dead_letters (` + insertColumns + `) SELECT ` + insertColumns + ` FROM v WHERE identity IS NOT NULL ON CONFLICT (identity) DO NOTHING RETURNING seq, identity),
	c AS (` + countInto() + `SELECT ?::bytea, v.cause, ?::bigint, COUNT(*)` + strings.Repeat(`, 0`, len(Statuses())-1) + `, COUNT(*), MIN(v.first_failed_at),
		MAX(v.last_failed_at), MAX(l.seq), ?::bigint, COUNT(*), 0 FROM l JOIN v USING (identity) GROUP BY v.cause ORDER BY v.cause
		` + countsConflict.add() + `),
	b AS (INSERT INTO spillway_letter_bodies (body, metadata, payload)
		SELECT l.seq, v.metadata, v.payload FROM l JOIN v USING (identity))
SELECT identity FROM l`
}

// manyFreshStatements are those of 1, 2, 4 and so on up to togetherRows letters.
func manyFreshStatements(statement func(string) string) (texts []string) {
	for rows := 1; rows <= togetherRows; rows *= 2 {
		texts = append(texts, statement(manyFreshStatement(rows)))
	}
	return texts
}

// errNotFresh undoes a batch with a letter that arrived before.
var errNotFresh = errors.New("a letter of the batch is in the table already")

// storeManyRows stores letters that are new with a few statements in one transaction, or none if one of them is there.
func (s *Store) storeManyRows(ctx context.Context, records []*record) (map[string]bool, error) {
	return identitiesOf(records), s.writeLetters(ctx, len(records), func(tx *sql.Tx, t tally) error {
		now := time.Now()
		var args, identities, bodies []any
		for _, r := range records {
			args = append(args, r.args(now, s.db)...)
			identities = append(identities, r.identity)
		}
		result, err := tx.ExecContext(ctx, insertLetters+insertRow+strings.Repeat(", "+insertRow, len(records)-1)+
			"\n"+onDuplicate, args...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != int64(len(records)) { // a row that was there counts as 2
			return errors.Join(err, errNotFresh)
		}
		seqs, err := s.seqsOf(ctx, tx, identities)
		if err != nil {
			return err
		}
		for _, r := range records {
			seq, stored := seqs[string(r.identity)]
			if !stored {
				return errNotFresh
			}
			bodies = append(bodies, seq, r.metadata, r.payload())
			first, last := r.failed(now)
			t.moved(r.cause, "", StatusWaiting)
			t.arrived(r, seq, first, last)
		}
		_, err = tx.ExecContext(ctx, insertBody+strings.Repeat(", (?, ?, ?)", len(records)-1), bodies...)
		return err
	})
}

// seqsOf returns the Seq of each letter by its identity.
func (s *Store) seqsOf(ctx context.Context, tx *sql.Tx, identities []any) (map[string]int64, error) {
	rows, err := tx.QueryContext(ctx, `SELECT seq, identity FROM spillway_dead_letters WHERE identity IN (?`+
		strings.Repeat(", ?", len(identities)-1)+`)`, identities...)
	if err != nil {
		return nil, err
	}
	seqs := make(map[string]int64, len(identities))
	err = database.Each(rows, func(rows *sql.Rows) error {
		var seq int64
		var identity []byte
		err := rows.Scan(&seq, &identity)
		seqs[string(identity)] = seq
		return err
	})
	return seqs, err
}
