package sequence

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/metadatacodec"
)

// Message is a parked message, for people.
type Message struct {
	Seq      int64             `json:"seq"`
	ID       string            `json:"id"`
	Position int64             `json:"position"`
	SentAt   time.Time         `json:"sent_at"`
	Due      time.Time         `json:"due_at"`
	Held     bool              `json:"held"`
	Bytes    int64             `json:"bytes"`
	Decided  string            `json:"decided,omitempty"`
	By       string            `json:"decided_by,omitempty"`
	Why      string            `json:"reason,omitempty"`
	Metadata map[string]string `json:"-"` // with its failure
}

// Show returns the sequence of a message, and its first messages, at most limit.
func Show(ctx context.Context, db *sql.DB, service string, seq int64,
	limit int) (first Parked, all []Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	on, first, err := find(ctx, db, service, seq)
	if err != nil {
		return first, nil, err
	}
	err = on.Query(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		var m Message
		var id, by, why, metadata []byte
		var sent, due, held int64
		var decision Decision
		if err := rows.Scan(&m.Seq, &id, &m.Position, &sent, &due, &held, &m.Bytes, &decision, &by, &why,
			&metadata); err != nil {
			return err
		}
		m.ID, m.SentAt, m.Due = shown(id), time.UnixMicro(sent).UTC(), time.Now().Add(microseconds(due)).UTC()
		if m.Held = held != 0 && decision == Undecided; decision != Undecided {
			m.Decided, m.By, m.Why = decision.String(), shown(by), boundedtext.Text(string(why), mostWhy)
		}
		m.Metadata, _ = metadatacodec.Read(metadata) // of a damaged row there is none
		all = append(all, m)
		return nil
	}, on.Statement(`SELECT seq, id, position, sent_at, due_at - now_us(), held, bytes, decision, decided_by, decided_why, metadata
FROM spillway_parked WHERE source = ? AND lane = ? ORDER BY seq LIMIT ?`), first.source, first.lane, limit)
	if err != nil {
		err = fmt.Errorf("show parked messages: %w", err)
	}
	return first, all, err
}
