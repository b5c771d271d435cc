package redrive

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/classify"
)

// Group is the letters of one cause.
type Group struct {
	DeadLetterTopic string
	// Topic and Handler are those of the origin.
	Topic, Handler string
	Class          classify.Class
	Reason         string
	// Type is the chain of error types.
	Type      string
	StackHash string

	// Count is how many letters there are.
	Count int
	// FirstFailedAt and LastFailedAt are of the earliest and the latest failure of all of them, to the microsecond.
	FirstFailedAt, LastFailedAt time.Time
	// Example is the Seq of the letter that arrived last, and Description what it says.
	Example     int64
	Description string
}

// Groups returns the letters that f chooses by cause, the largest groups first, at most Filter.Limit of them.
func (s *Store) Groups(ctx context.Context, f Filter) ([]Group, error) {
	if err := f.validate("Filter"); err != nil {
		return nil, err
	}
	w := f.where(s.dialect.text)
	var groups []Group
	err := s.read(ctx, func() { groups = nil }, func(rows *sql.Rows) error {
		g, err := scanGroup(rows)
		groups = append(groups, g)
		return err
	}, `
WITH causes AS (
	SELECT dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash,
		COUNT(*) AS letters, MIN(first_failed_at) AS first, MAX(last_failed_at) AS last, MAX(seq) AS example
	FROM spillway_dead_letters`+w.String()+`
	GROUP BY dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash
	ORDER BY letters DESC, example DESC LIMIT ?)
SELECT causes.*, l.description FROM causes JOIN spillway_dead_letters AS l ON l.seq = causes.example
ORDER BY letters DESC, example DESC`, append(w.args, f.limit())...)
	if err != nil {
		return nil, fmt.Errorf("redrive: group dead letters: %w", err)
	}
	return groups, nil
}

func scanGroup(rows *sql.Rows) (Group, error) {
	var g Group
	var deadLetterTopic, topic, handler []byte
	var class string
	var first, last int64
	err := rows.Scan(&deadLetterTopic, &topic, &handler, &class, &g.Reason, &g.Type, &g.StackHash,
		&g.Count, &first, &last, &g.Example, &g.Description)
	g.DeadLetterTopic, g.Topic, g.Handler = string(deadLetterTopic), string(topic), string(handler)
	g.Class, _ = classify.ParseClass(class)
	g.FirstFailedAt, g.LastFailedAt = fromMicro(first), fromMicro(last)
	return g, err
}
