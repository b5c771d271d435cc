package letters

import (
	"context"
	"database/sql"
	"maps"
	"slices"
)

// Count returns the number of letters that f chooses. Filter.Limit is not used. With an error there is no number: it
// returns 0.
func (s *Store) Count(ctx context.Context, f Filter) (int, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := f.validateInOrder(); err != nil {
		return 0, err
	}
	n, err := s.countLetters(ctx, f)
	if err != nil {
		return 0, wrapped("count", err) // what was counted so far is no number
	}
	return n, nil
}

func (s *Store) countLetters(ctx context.Context, f Filter) (n int, err error) {
	if f.causesOnly() {
		if err := s.fillCauses(ctx); err != nil {
			return 0, err
		}
		tables, number, w := s.numbers(f)
		err = s.read(ctx, func() {}, func(rows *sql.Rows) error {
			return rows.Scan(&n)
		}, `SELECT COALESCE(`+number+`, 0) FROM `+tables+w.String(), w.args...)
		return n, err
	}
	if len(f.Metadata) > 0 {
		err = s.withMetadata(ctx, f, false, func(candidate) bool { n++; return true })
		return n, err
	}
	r, err := s.routeOf(ctx, f)
	if err != nil {
		return 0, err
	}
	err = s.each(ctx, r, func(f Filter) (bool, error) {
		w, some := s.where(f), 0
		err := s.readPlanned(ctx, func() {}, func(rows *sql.Rows) error {
			return rows.Scan(&some)
		}, `SELECT COUNT(*) FROM spillway_dead_letters`+r.hint+w.String(), w.args...)
		n += some
		return true, err
	})
	return n, err
}

func (in *inner) CountTopics(ctx context.Context, f Filter) (map[string]int, error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.validateInOrder(); err != nil {
		return nil, err
	}
	byTopic, err := s.countTopics(ctx, f)
	return byTopic, wrapped("count by topic", err)
}

func (s *Store) countTopics(ctx context.Context, f Filter) (map[string]int, error) {
	counted, err := s.countCauses(ctx, f, 0)
	if err != nil {
		return nil, err
	}
	topics := make(map[string]string, len(counted))
	for some := range slices.Chunk(slices.Sorted(maps.Keys(counted)), maxCauses) {
		w := new(where)
		w.and("service = ?", asBytes(s.service))
		anyIn(w, "cause", some, s.db.Text)
		err := s.read(ctx, func() {}, func(rows *sql.Rows) error {
			var cause string
			var topic []byte
			err := rows.Scan(&cause, &topic)
			topics[cause] = string(topic)
			return err
		}, `SELECT cause, origin_topic FROM spillway_letter_causes`+w.String(), w.args...)
		if err != nil {
			return nil, err
		}
	}
	byTopic := make(map[string]int)
	for cause, c := range counted {
		byTopic[topics[cause]] += c.n
	}
	return byTopic, nil
}
