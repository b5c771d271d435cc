package letters

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"
)

// Totals returns the numbers of all letters of the service, by their status. The numbers are kept with the letters:
// none is counted.
func (s *Store) Totals(ctx context.Context) (n StatusCounts, err error) {
	if err := s.usable(ctx); err != nil {
		return n, err
	}
	err = s.read(ctx, func() { n = StatusCounts{} }, func(rows *sql.Rows) error {
		return rows.Scan(&n.Waiting, &n.Redriven, &n.Succeeded, &n.FailedAgain, &n.Quarantined, &n.Refused, &n.Discarded)
	}, `SELECT COALESCE(SUM(waiting), 0), COALESCE(SUM(redriven), 0), COALESCE(SUM(succeeded), 0), COALESCE(SUM(failed_again), 0),
	COALESCE(SUM(quarantined), 0), COALESCE(SUM(refused), 0), COALESCE(SUM(discarded), 0)
FROM spillway_letter_counts WHERE service = ?`, asBytes(s.service))
	return n, wrapped("count by status", err)
}

// OldestWaiting returns, by cause, when the waiting letter that was stored first failed first. A cause without a
// waiting letter has no entry. Each cause costs a look into an index, however many letters it has.
func (s *Store) OldestWaiting(ctx context.Context, causes ...string) (map[string]time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	oldest := make(map[string]time.Time, len(causes))
	for some := range slices.Chunk(causes, oldestAtOnce) {
		var each []string
		var args []any
		for _, cause := range some {
			w := s.where(Filter{Causes: []string{cause}, Statuses: []Status{StatusWaiting}})
			each = append(each, `SELECT * FROM (SELECT cause, first_failed_at, stored_at FROM spillway_dead_letters`+
				s.statements.byCause+w.String()+` ORDER BY seq LIMIT 1) AS c`)
			args = append(args, w.args...)
		}
		err := s.read(ctx, func() {}, func(rows *sql.Rows) error {
			var cause string
			var first, stored int64
			err := rows.Scan(&cause, &first, &stored)
			if first == 0 {
				first = stored
			}
			oldest[cause] = fromMicro(first)
			return err
		}, strings.Join(each, "\nUNION ALL "), args...)
		if err != nil {
			return nil, wrapped("find the oldest", err)
		}
	}
	return oldest, nil
}

// oldestAtOnce is how many causes one statement of OldestWaiting looks up.
const oldestAtOnce = 50
