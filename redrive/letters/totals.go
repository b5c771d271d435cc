package letters

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
)

// numbers are numbers of letters, in the order of Statuses.
type numbers []int

func newNumbers() numbers { return make(numbers, len(Statuses())) }

// into is what a row of numbers is scanned into.
func (n numbers) into() []any {
	into := make([]any, len(n))
	for i := range n {
		into[i] = &n[i]
	}
	return into
}

func (n numbers) byStatus() map[Status]int {
	all := make(map[Status]int, len(n))
	for i, status := range Statuses() {
		all[status] = n[i]
	}
	return all
}

// statusColumns are the columns of the numbers, each in a format, in the order of Statuses.
func statusColumns(format string) string {
	var columns []string
	for _, status := range Statuses() {
		columns = append(columns, fmt.Sprintf(format, status))
	}
	return strings.Join(columns, ", ")
}

func (in *inner) Totals(ctx context.Context) (map[Status]int, error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	s.compared(ctx)
	n := newNumbers()
	err := s.read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(n.into()...) },
		`SELECT `+statusColumns("COALESCE(SUM(%s), 0)")+` FROM spillway_letter_counts WHERE service = ? AND cause <> ''`, asBytes(s.service))
	if err != nil {
		return nil, wrapped("count by status", err)
	}
	return n.byStatus(), nil
}

func (in *inner) OldestWaiting(ctx context.Context, causes ...string) (map[string]time.Time, error) {
	s := (*Store)(in)
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
