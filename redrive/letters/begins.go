package letters

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// CausesBySize returns the causes of the letters that f chooses in the order of Groups, without the first skip of them,
// at most most.
func (in *inner) CausesBySize(ctx context.Context, f Filter, skip, most int) ([]string, error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.validateInOrder(); err != nil {
		return nil, err
	}
	if skip < 0 || most < 1 {
		return nil, fmt.Errorf("letters: CausesBySize: skip is %d and most is %d", skip, most)
	}
	counted, err := s.countCauses(ctx, f, skip+most)
	if err != nil {
		return nil, wrapped("group", err)
	}
	order := bySize(counted)
	return order[min(skip, len(order)):min(skip+most, len(order))], nil
}

// CausesBegin returns the causes of the service whose hash begins so, at most most, in the order of their hashes.
func (in *inner) CausesBegin(ctx context.Context, begin string, most int) (causes []string, err error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if begin == "" || strings.Trim(begin, "0123456789abcdef") != "" {
		return nil, nil // no hash begins so
	}
	err = s.read(ctx, func() { causes = nil }, func(rows *sql.Rows) error {
		var cause string
		err := rows.Scan(&cause)
		causes = append(causes, cause)
		return err
	}, `SELECT cause FROM spillway_letter_causes WHERE service = ? AND cause LIKE ? ORDER BY cause LIMIT ?`,
		asBytes(s.service), s.db.Text(begin+"%"), most)
	return causes, wrapped("find causes", err)
}
