package letters

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/classify"
)

// Group describes the letters of one cause. They failed in the same handler, for the same reason, with an error of the same
// type and the same text, apart from its numbers, ids and quoted texts.
type Group struct {
	// Cause is the hash of the cause, for Filter.Causes. It is the same in every process.
	Cause string
	// DeadLetterTopic is the topic that the letters were placed in.
	DeadLetterTopic string
	// Topic is the origin topic.
	Topic string
	// Handler is the name of the handler that failed.
	Handler string
	Class   classify.Class
	Reason  string
	// Type is the chain of error types.
	Type      string
	StackHash string

	// Count is the number of letters.
	Count int
	// FirstFailedAt is the time of the earliest failure of any letter of the group, to the microsecond.
	FirstFailedAt time.Time
	// LastFailedAt is the time of the latest failure.
	LastFailedAt time.Time
	// Example is the Seq of the letter that arrived last.
	Example int64
	// Description is the description of that letter.
	Description string
}

// Filter chooses the letters of the group that wait. If Groups had a Filter with Statuses or times, set them here too.
func (g Group) Filter() Filter { return Filter{Causes: []string{g.Cause}} }

// Groups returns the causes of the letters that f chooses, the largest groups first, at most Filter.Limit of them.
func (s *Store) Groups(ctx context.Context, f Filter) ([]Group, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if err := s.fillCauses(ctx); err != nil {
		return nil, fmt.Errorf("letters: group: %w", err)
	}
	w := s.where(f)
	var groups []Group
	err := s.read(ctx, func() { groups = nil }, func(rows *sql.Rows) error {
		g, err := scanGroup(rows)
		groups = append(groups, g)
		return err
	}, `
WITH causes AS (
	SELECT cause, COUNT(*) AS letters, MIN(first_failed_at) AS first, MAX(last_failed_at) AS last, MAX(seq) AS example
	FROM spillway_dead_letters`+w.String()+`
	GROUP BY cause
	ORDER BY letters DESC, example DESC LIMIT ?)
SELECT causes.cause, l.dead_letter_topic, l.origin_topic, l.handler, l.class, l.reason, l.type, l.stack_hash,
	causes.letters, causes.first, causes.last, causes.example, l.description
FROM causes JOIN spillway_dead_letters AS l ON l.seq = causes.example
ORDER BY letters DESC, example DESC`, append(w.args, f.limit())...)
	if err != nil {
		return nil, fmt.Errorf("letters: group: %w", err)
	}
	return groups, nil
}

func scanGroup(rows *sql.Rows) (Group, error) {
	var g Group
	var deadLetterTopic, topic, handler []byte
	var class string
	var first, last int64
	err := rows.Scan(&g.Cause, &deadLetterTopic, &topic, &handler, &class, &g.Reason, &g.Type, &g.StackHash,
		&g.Count, &first, &last, &g.Example, &g.Description)
	g.DeadLetterTopic, g.Topic, g.Handler = string(deadLetterTopic), string(topic), string(handler)
	g.Class = classOf(class)
	g.FirstFailedAt, g.LastFailedAt = fromMicro(first), fromMicro(last)
	return g, err
}
