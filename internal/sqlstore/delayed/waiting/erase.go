package waiting

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/poison"
)

// Selection chooses messages that wait. Set one of its fields.
type Selection struct {
	// IDs are ids of messages, at most MaxIDs of them.
	IDs []string
	// Metadata are keys of the messages' metadata with the values that they must have, byte for byte. All of them must
	// be there.
	Metadata map[string]string
}

// MaxIDs is the largest number of Selection.IDs.
const MaxIDs = 500

// EraseOptions are options of Erase.
type EraseOptions struct {
	// DryRun counts the messages and removes none.
	DryRun bool
	// Before is called with the ids of at most 500 messages before they are removed, outside of any transaction, and by
	// a dry run too. An error ends Erase. Default: none.
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

// Erase removes the messages that a Selection chooses. It reads the whole table, in windows, and removes at most 500
// messages in one transaction, beside other traffic. A message that is put meanwhile may stay. Erase can be called
// again after an error, and returns what it did, also with an error. A removed message is lost, which is what is asked
// for: no handler gets it.
func (t *Table) Erase(ctx context.Context, chosen Selection, options EraseOptions) (done Erased, err error) {
	if err := chosen.validate(); err != nil {
		return done, err
	}
	if t.db.Held(ctx) {
		return done, fmt.Errorf("delay: erase: %w", ErrHeld)
	}
	err = t.erase(ctx, &chosen, &options, &done)
	if err != nil {
		err = fmt.Errorf("delay: erase, after %d messages: %w", done.Messages, err)
	}
	return done, err
}

func (c *Selection) validate() error {
	switch {
	case len(c.IDs) == 0 && len(c.Metadata) == 0:
		return errors.New("delay: erase: the Selection chooses nothing: set IDs or Metadata")
	case len(c.IDs) > 0 && len(c.Metadata) > 0:
		return errors.New("delay: erase: Selection.IDs and Metadata are both set: set one")
	case len(c.IDs) > MaxIDs:
		return fmt.Errorf("delay: erase: Selection.IDs lists %d ids, at most %d are possible: use several calls",
			len(c.IDs),
			MaxIDs)
	}
	return nil
}

// row is a message that may be chosen.
type row struct {
	seq    int64
	id     string
	inHand bool
}

func (t *Table) erase(ctx context.Context, c *Selection, options *EraseOptions, done *Erased) error {
	var first, last int64
	err := t.Rows(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&first, &last) },
		`SELECT COALESCE((SELECT MIN(seq) FROM spillway_delayed), 0), COALESCE((SELECT MAX(seq) FROM spillway_delayed), 0)`)
	width := int64(idsWindow)
	if len(c.Metadata) > 0 {
		width = dataWindow
	}
	for after := first - 1; err == nil && after < last; after += width {
		var found []row
		if found, err = t.chosen(ctx, c, after, min(after+width, last)); err != nil {
			break
		}
		for err == nil && len(found) > 0 {
			some := found[:min(len(found), eraseAtOnce)]
			found = found[len(some):]
			err = t.eraseSome(ctx, some, options, done)
		}
	}
	return err
}

// chosen returns the messages between two numbers that are chosen.
func (t *Table) chosen(ctx context.Context, c *Selection, after, last int64) (found []row, err error) {
	condition, args := "", []any{[]byte(t.service), after, last}
	if len(c.IDs) > 0 {
		condition = ` AND id IN (?` + strings.Repeat(",?", len(c.IDs)-1) + `)`
		for _, id := range c.IDs {
			args = append(args, []byte(id))
		}
	}
	metadata := `''`
	if len(c.Metadata) > 0 {
		metadata = `metadata`
	}
	err = t.Rows(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		var w row
		var id, packed []byte
		err := rows.Scan(&w.seq, &id, &packed, &w.inHand)
		w.id = string(id)
		if err == nil && c.has(packed) {
			found = append(found, w)
		}
		return err
	}, t.db.Statement(`SELECT seq, id, `+metadata+
		`, token <> '' AND ready_at > now_us() FROM spillway_delayed WHERE service = ? AND seq > ? AND seq <= ?`+
		condition+` ORDER BY seq`), args...)
	return found, err
}

// has reports whether packed metadata have the pairs, as they are or as the producer gave them.
func (c *Selection) has(packed []byte) bool {
	if len(c.Metadata) == 0 {
		return true
	}
	metadata, err := metadatacodec.Read(packed)
	if err != nil { // damaged
		return false
	}
	msg := message.NewMessage("", nil)
	msg.Metadata = metadata
	original := poison.Read(msg).Original.Metadata
	for key, value := range c.Metadata {
		if got, ok := metadata[key]; ok && got == value {
			continue
		}
		if got, ok := original[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func (t *Table) eraseSome(ctx context.Context, some []row, options *EraseOptions, done *Erased) error {
	var seqs []int64
	var ids []string
	for _, w := range some {
		if ids = append(ids, w.id); !w.inHand {
			seqs = append(seqs, w.seq)
		}
	}
	if options.Before != nil {
		if err := options.Before(ctx, ids); err != nil {
			return err
		}
	}
	if options.DryRun {
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
