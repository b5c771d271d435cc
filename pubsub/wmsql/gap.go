package wmsql

import (
	"context"
	"time"
)

// gap is a number that is missing in front of the next message, and since when. MySQL gives a number to a row before
// the row is visible, and the row of another publisher with the next number may be visible first. A position that moved
// past the missing number would lose the message. The number of a publisher that rolled back stays missing. So the
// subscription waits once for a gap, and longer only while a transaction has an uncommitted row in it.
//
// All numbers that are missing below the highest visible one have been given out by then, so one wait covers them all.
// With auto_increment_increment above 1 there is a gap before every number. The step is not learnt from the server's
// setting, nor from rows: another session, or another node of a cluster, may have another step or start.
type gap struct {
	seen  int64 // the highest number in the table by then
	since time.Time
}

// beforeGap returns the messages up to the first gap. If the gap comes first it returns none, and how long to wait.
func (s *subscription) beforeGap(ctx context.Context, t *transaction, entries []entry,
	from position) ([]entry, time.Duration) {
	expected := from.offset + 1
	for i := range entries {
		offset := entries[i].at.offset
		if offset != expected && (!s.waitedFor(ctx, t, offset) || s.pending(ctx, t, expected, offset)) {
			if over, _ := t.fate(); i > 0 && over == nil {
				return entries[:i], 0
			}
			return nil, max(s.of.config.GapWait, time.Millisecond)
		}
		expected = offset + 1
	}
	return entries, 0
}

// pending reports whether a transaction has an uncommitted row between two numbers: a read with a lock meets it. An
// error ends the transaction, in which nothing has happened yet, and counts as a yes.
func (s *subscription) pending(ctx context.Context, t *transaction, first, behind int64) bool {
	query := s.of.source.between(s.topic, first, behind)
	rows, err := t.db.QueryContext(ctx, query.Query, query.Args...)
	if err != nil {
		return true
	}
	found := rows.Next() // committed just now
	return rows.Close() != nil || rows.Err() != nil || found
}

// waitedFor reports whether the gap before a number was seen long enough ago to be passed over.
func (s *subscription) waitedFor(ctx context.Context, t *transaction, number int64) bool {
	if number <= s.gap.seen {
		return time.Since(s.gap.since) >= s.of.config.GapWait
	}
	highest := number // if the query fails, the numbers behind this one wait again
	query := s.of.source.highest(s.topic)
	_ = t.db.QueryRowContext(ctx, query.Query, query.Args...).Scan(&highest)
	s.gap = gap{seen: max(number, highest), since: time.Now()}
	return false
}
