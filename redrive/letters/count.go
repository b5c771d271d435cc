package letters

import (
	"context"
	"database/sql"
	"fmt"
)

// Count returns the number of letters that f chooses. Filter.Limit is not used.
func (s *Store) Count(ctx context.Context, f Filter) (int, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := f.Validate(); err != nil {
		return 0, err
	}
	w, n := s.where(f), 0
	err := s.read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&n) },
		`SELECT COUNT(*) FROM spillway_dead_letters`+w.String(), w.args...)
	if err != nil {
		return 0, fmt.Errorf("letters: count: %w", err)
	}
	return n, nil
}

// TopicCount is the number of letters of one origin topic.
type TopicCount struct {
	// Topic is empty for letters without an origin topic.
	Topic   string
	Letters int
}

// CountTopics returns the number of letters that f chooses, and the counts of their origin topics: the topics with the most
// letters first, at most Filter.Limit topics.
func (s *Store) CountTopics(ctx context.Context, f Filter) (topics []TopicCount, all int, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, 0, err
	}
	if err := f.Validate(); err != nil {
		return nil, 0, err
	}
	w := s.where(f)
	err = s.read(ctx, func() { topics, all = nil, 0 }, func(rows *sql.Rows) error {
		var topic []byte
		var n int
		if err := rows.Scan(&topic, &n, &all); err != nil {
			return err
		}
		topics = append(topics, TopicCount{string(topic), n})
		return nil
	}, `SELECT origin_topic, COUNT(*) AS letters, SUM(COUNT(*)) OVER () FROM spillway_dead_letters`+w.String()+`
GROUP BY origin_topic ORDER BY letters DESC, origin_topic LIMIT ?`, append(w.args, f.limit())...)
	if err != nil {
		return nil, 0, fmt.Errorf("letters: count by topic: %w", err)
	}
	return topics, all, nil
}
