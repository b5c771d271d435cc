package letters

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
)

func (in *inner) Arrivals(ctx context.Context, causes ...string) ([]inside.Arrivals, error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if len(causes) > MaxListed {
		return nil, fmt.Errorf("letters: arrivals of %d causes: at most %d are possible: use several calls", len(causes),
			MaxListed)
	}
	if len(causes) == 0 {
		return nil, nil
	}
	now := time.Now().Unix() / 60
	first := now - 59
	w := new(where)
	w.and("service = ?", asBytes(s.service))
	anyIn(w, "cause", causes, s.db.Text)
	w.and("minute >= ?", first)
	counted := make(map[string]*[60]int)
	err := s.read(ctx, func() { clear(counted) }, func(rows *sql.Rows) error {
		var cause, recent string
		var minute int64
		var n int
		if err := rows.Scan(&cause, &minute, &n, &recent); err != nil {
			return err
		}
		if counted[cause] == nil {
			counted[cause] = new([60]int)
		}
		eachMinute(minute, n, recent, func(minute int64, n int) {
			if minute >= first { // the clock of another process may be ahead
				counted[cause][min(minute, now)-first] += n
			}
		})
		return nil
	}, `SELECT cause, minute, in_minute, recent FROM spillway_letter_counts`+w.String(), w.args...)
	if err != nil {
		return nil, wrapped("read arrivals", err)
	}
	all := make([]inside.Arrivals, len(causes))
	for i, cause := range causes {
		all[i] = inside.Arrivals{Cause: cause, From: time.Unix(first*60, 0).UTC()}
		if n := counted[cause]; n != nil {
			all[i].PerMinute = *n
		}
	}
	return all, nil
}

// eachMinute calls add with the latest minute, and with those that the column recent holds: no minute is more than 60
// before the one in front of it. What is behind a damaged entry, or cut, is left out.
func eachMinute(minute int64, n int, recent string, add func(minute int64, n int)) {
	add(minute, n)
	for {
		entry, rest, whole := strings.Cut(recent, " ")
		modulo, number, ok := strings.Cut(entry, ":")
		before, err := strconv.ParseInt(modulo, 10, 64)
		if !whole || !ok || err != nil || before < 0 || before > 999 {
			return
		}
		if n, err = strconv.Atoi(number); err != nil || n < 0 {
			return
		}
		minute -= (minute%1000 - before + 1000) % 1000
		add(minute, n)
		recent = rest
	}
}
