package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/poison"
)

// entry is a row of the table of messages.
type entry struct {
	row        wsql.Row
	at         position
	unreadable bool
	*trouble

	line   *line         // if the order of keys is kept
	parked *sequence.Row // if the message was parked
}

// lock locks the group's position. It reports whether the position was set back, so that the next transaction begins
// anew.
func (s *subscription) lock(ctx context.Context, t *transaction) (from position, restarted bool, err error) {
	from, trust, err := s.of.source.position(ctx, t.db, s.topic, s.of.config.ConsumerGroup, forUpdate)
	if err != nil {
		return from, false, fmt.Errorf("wmsql: lock the position: %w", err)
	}
	restarted, err = s.standsAhead(ctx, t, from, trust)
	return from, restarted, err
}

// read reads what comes behind the group's position. If that may not be taken yet, wait is the time until the next try.
func (s *subscription) read(ctx context.Context, t *transaction,
	from position) (entries []entry, wait time.Duration, err error) {
	if entries, err = s.page(ctx, t.db, from, s.of.config.Batch); err != nil {
		return nil, 0, fmt.Errorf("wmsql: select messages: %w", err)
	}
	if s.of.dialect.gaps {
		entries, wait = s.beforeGap(ctx, t, entries, from)
	}
	return entries, wait, nil
}

// nothing reports, without a lock or a transaction, whether there is nothing to read. The lock of read makes PostgreSQL
// write and use up a transaction id. An idle consumer should not do that many times a second.
func (s *subscription) nothing(ctx context.Context) (bool, error) {
	from, trust, err := s.of.source.position(ctx, s.of.db, s.topic, s.of.config.ConsumerGroup, "")
	if err != nil {
		return false, fmt.Errorf("wmsql: read the position: %w", err)
	}
	if s.order.isStale(from) {
		return false, nil
	}
	if suspected, err := s.suspected(ctx, from, trust); suspected || err != nil {
		return false, err
	}
	query := s.of.source.next(s.topic, from, 1)
	rows, err := s.of.db.QueryContext(ctx, query.Query, query.Args...)
	if err != nil {
		return false, fmt.Errorf("wmsql: look for messages: %w", err)
	}
	found := rows.Next()
	return !found, errors.Join(rows.Err(), rows.Close())
}

// entry reads one row. A row that the adapter cannot read becomes a message with the payload's bytes, which
// poison.Queue dead-letters: its columns are read by their names.
func (s *subscription) entry(rows *sql.Rows) (entry, error) {
	row, err := s.of.config.Schema.UnmarshalMessage(rows)
	unreadable := err != nil
	if unreadable {
		if row, err = raw(rows, err); err != nil {
			return entry{}, fmt.Errorf("wmsql: read a row of %q: %w", s.topic, err)
		}
	}
	if row.Msg.Metadata == nil { // of a column that is null; setting metadata would panic
		row.Msg.Metadata = message.Metadata{}
	}
	restoreCarried(row.Msg)
	e := entry{row: row, at: position{offset: row.Offset}, unreadable: unreadable, trouble: &s.trouble}
	e.at.transaction, _ = row.ExtraData["transaction_id"].(int64)
	return e, nil
}

// KeyMetadata is the metadata key under which a message that could not be read carries the text of its metadata column.
const KeyMetadata = "x-sql-metadata"

// raw reads a row without understanding it.
func raw(rows *sql.Rows, unreadable error) (wsql.Row, error) {
	columns, err := rows.Columns()
	if err != nil {
		return wsql.Row{}, err
	}
	row := wsql.Row{ExtraData: map[string]any{}}
	var offset, transaction sql.NullInt64
	var metadata []byte
	to := make([]any, len(columns))
	for i, column := range columns {
		switch column {
		case "offset":
			to[i] = &offset
		case "transaction_id":
			to[i] = &transaction
		case "uuid":
			to[i] = &row.UUID
		case "payload":
			to[i] = &row.Payload
		case "metadata":
			to[i] = &metadata
		default:
			to[i] = new(any)
		}
	}
	if err := rows.Scan(to...); err != nil {
		return wsql.Row{}, fmt.Errorf("%w: %w", unreadable, err)
	}
	if !offset.Valid {
		return wsql.Row{}, fmt.Errorf("%w, and there is no column \"offset\"", unreadable)
	}
	row.Offset = offset.Int64
	if transaction.Valid {
		row.ExtraData["transaction_id"] = transaction.Int64
	}
	row.Msg = message.NewMessage(string(row.UUID), row.Payload)
	row.Metadata = metadata
	row.Msg.Metadata.Set(KeyMetadata, string(metadata))
	poison.MarkUnreadable(row.Msg, unreadable)
	return row, nil
}

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
