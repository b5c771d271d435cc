package waiting

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
)

// MaxIDs is the largest number of Erasing.IDs.
const MaxIDs = 500

// Erasing says what is erased. Set IDs or Match.
type Erasing struct {
	// IDs are ids of messages, at most MaxIDs of them.
	IDs []string
	// Match chooses messages by their metadata.
	Match func(id string, metadata map[string]string) bool
	// DryRun counts the messages and removes none.
	DryRun bool
	// Before is called with the ids of at most 500 messages before they are removed, outside of any transaction, and by
	// a dry run too. An error ends Erase.
	Before func(ctx context.Context, ids []string) error
}

// Erased is what Erase did, or would do.
type Erased struct {
	// Messages is the number of messages that were removed. They are published to no topic any more.
	Messages int
	// InHand is the number of messages that stay because a relay is publishing them. Erase what the relay puts back by
	// another call.
	InHand int
}

const (
	eraseAtOnce = 500    // messages in one transaction
	idsWindow   = 50_000 // numbers that one statement looks at
	dataWindow  = 2_000  // the same if it reads the metadata of each
)

// Erase removes the messages that are chosen. It reads the whole table, in windows, and removes at most 500 messages in
// one transaction, beside other traffic. A message that is put meanwhile may stay. Erase can be called again after an
// error, and returns what it did, also with an error. A removed message is lost, which is what is asked for: no handler
// gets it.
func (t *Table) Erase(ctx context.Context, e Erasing) (done Erased, err error) {
	if t.db.Held(ctx) {
		return done, fmt.Errorf("delay: erase: %w", ErrHeld)
	}
	if err = t.erase(ctx, &e, &done); err != nil {
		err = fmt.Errorf("delay: erase, after %d messages: %w", done.Messages, err)
	}
	return done, err
}

// row is a message that may be chosen.
type row struct {
	seq    int64
	id     string
	inHand bool
}

func (t *Table) erase(ctx context.Context, e *Erasing, done *Erased) error {
	var first, last int64
	err := t.Rows(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&first, &last) },
		`SELECT COALESCE((SELECT MIN(seq) FROM spillway_delayed), 0), COALESCE((SELECT MAX(seq) FROM spillway_delayed), 0)`)
	width := int64(idsWindow)
	if e.Match != nil {
		width = dataWindow
	}
	for after := first - 1; err == nil && after < last; after += width {
		var found []row
		if found, err = t.chosen(ctx, e, after, min(after+width, last)); err != nil {
			break
		}
		for err == nil && len(found) > 0 {
			some := found[:min(len(found), eraseAtOnce)]
			found = found[len(some):]
			err = t.eraseSome(ctx, some, e, done)
		}
	}
	return err
}

// chosen returns the messages between two numbers that are chosen.
func (t *Table) chosen(ctx context.Context, e *Erasing, after, last int64) (found []row, err error) {
	condition, args := "", []any{[]byte(t.service), after, last}
	if len(e.IDs) > 0 {
		condition = ` AND id IN (?` + strings.Repeat(",?", len(e.IDs)-1) + `)`
		for _, id := range e.IDs {
			args = append(args, []byte(id))
		}
	}
	metadata := `''`
	if e.Match != nil {
		metadata = `metadata`
	}
	err = t.Rows(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		var w row
		var id, packed []byte
		err := rows.Scan(&w.seq, &id, &packed, &w.inHand)
		w.id = string(id)
		if err == nil && e.chooses(w.id, packed) {
			found = append(found, w)
		}
		return err
	}, t.db.Statement(`SELECT seq, id, `+metadata+
		`, token <> '' AND ready_at > now_us() FROM spillway_delayed WHERE service = ? AND seq > ? AND seq <= ?`+
		condition+` ORDER BY seq`), args...)
	return found, err
}

func (e *Erasing) chooses(id string, packed []byte) bool {
	if e.Match == nil {
		return true
	}
	metadata, err := metadatacodec.Read(packed)
	return err == nil && e.Match(id, metadata) // or damaged
}

func (t *Table) eraseSome(ctx context.Context, some []row, e *Erasing, done *Erased) error {
	var seqs []int64
	var ids []string
	for _, w := range some {
		if ids = append(ids, w.id); !w.inHand {
			seqs = append(seqs, w.seq)
		}
	}
	if e.Before != nil {
		if err := e.Before(ctx, ids); err != nil {
			return err
		}
	}
	if e.DryRun {
		done.Messages, done.InHand = done.Messages+len(seqs), done.InHand+len(some)-len(seqs)
		return nil
	}
	removed := int64(0)
	if len(seqs) > 0 {
		ctx, cancel := context.WithTimeout(ctx, maxWrite)
		defer cancel()
		condition, args := t.db.Among("seq", seqs)
		var err error
		removed, err = t.db.Exec(ctx,
			t.db.Statement(`DELETE FROM spillway_delayed WHERE service = ? AND (token = '' OR ready_at <= now_us()) AND `+
				condition),
			append([]any{[]byte(t.service)}, args...)...)
		if err != nil {
			return err
		}
	}
	done.Messages, done.InHand = done.Messages+int(removed), done.InHand+len(some)-int(removed)
	return nil
}
