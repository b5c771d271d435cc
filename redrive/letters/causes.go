package letters

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"
)

const (
	causesAtOnce = 500
	// maxBeginCauses bounds what NewStore does for the letters of an older version. Groups does the rest.
	maxBeginCauses = 5 * time.Second
)

// beginCauses computes the causes of letters that an older version of this package stored. Whether it succeeds does not
// matter: Groups goes on where it ends, and returns its error.
func (s *Store) beginCauses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxBeginCauses)
	defer cancel()
	_ = s.fillCauses(ctx)
}

// fillCauses computes the cause and size of each letter that has none. As a rule there is none, and an index says so.
// Programs of the older version may still be storing letters.
func (s *Store) fillCauses(ctx context.Context) error {
	for {
		hashes := make(map[int64]string)
		err := s.read(ctx, func() { clear(hashes) }, func(rows *sql.Rows) error {
			var seq int64
			var deadLetterTopic, topic, handler []byte
			var c cause
			err := rows.Scan(&seq, &deadLetterTopic, &topic, &handler, &c.class, &c.reason, &c.typ, &c.stackHash, &c.description)
			c.deadLetterTopic, c.topic, c.handler = string(deadLetterTopic), string(topic), string(handler)
			hashes[seq] = c.hash()
			return err
		}, `SELECT seq, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash, description
FROM spillway_dead_letters WHERE cause = '' ORDER BY seq LIMIT ?`, causesAtOnce)
		if err != nil || len(hashes) == 0 {
			return err
		}
		err = s.writeLetters(ctx, len(hashes), func(tx *sql.Tx) error {
			for _, seq := range slices.Sorted(maps.Keys(hashes)) {
				_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters
SET cause = ?, size = LENGTH(metadata) + COALESCE(LENGTH(payload), 0) WHERE seq = ? AND cause = ''`, s.db.Text(hashes[seq]), seq)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}
