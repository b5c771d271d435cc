package letters

import (
	"context"
	"database/sql"
	"strings"

	"github.com/watermill-spillway/spillway/classify"
)

// causesOnly reports whether f chooses by nothing but the status and what all letters of a cause have in common. Then
// the numbers of the causes answer how many letters f chooses, and the table of letters is not read.
func (f *Filter) causesOnly() bool {
	return f.Description == "" && f.Payload == "" && len(f.Metadata) == 0 && !f.Leased && len(f.IDs) == 0 &&
		len(f.SealKeys) == 0 && len(f.RedriveIDs) == 0 && f.Since.IsZero() && f.Until.IsZero() && f.After == 0 &&
		f.MaxSeq == 0 && len(f.unless) == 0
}

// byCause reports whether f chooses by what letters of a cause have in common.
func (f *Filter) byCause() bool {
	return len(f.Topics)+len(f.NotTopics)+len(f.DeadLetterTopics)+len(f.Handlers)+len(f.Classes)+len(f.Reasons)+
		len(f.Types)+len(f.Causes) > 0 || f.StackHash != "" || f.NoOrigin
}

// ofCauses returns f with the causes that it chooses in place of what they have in common.
func (f Filter) ofCauses(causes []string) Filter {
	f.Topics, f.NotTopics, f.DeadLetterTopics, f.Handlers, f.Classes, f.Reasons, f.Types, f.StackHash = nil, nil, nil, nil,
		nil, nil, nil, ""
	f.Causes, f.NoOrigin = causes, false
	return f
}

// common adds the conditions on what the letters of a cause have in common. Both the letters and the causes have these
// columns.
func (s *Store) common(w *where, f *Filter, prefix string) {
	anyIn(w, prefix+"origin_topic", f.Topics, asBytes)
	anyIn(w, prefix+"origin_topic NOT", f.NotTopics, asBytes)
	if f.NoOrigin {
		w.and(prefix+"origin_topic = ?", asBytes(""))
	}
	anyIn(w, prefix+"dead_letter_topic", f.DeadLetterTopics, asBytes)
	anyIn(w, prefix+"handler", f.Handlers, asBytes)
	anyIn(w, prefix+"class", f.Classes, func(class classify.Class) any { return s.db.Text(class.String()) })
	anyIn(w, prefix+"reason", f.Reasons, s.db.Bytes)
	anyIn(w, prefix+"type", f.Types, s.db.Bytes)
	anyIn(w, prefix+"cause", f.Causes, s.readable)
	if f.StackHash != "" {
		w.and(prefix+"stack_hash = ?", s.db.Bytes(f.StackHash))
	}
}

// numbers are the tables of numbers and causes together, with the conditions of f on them. letters is the number of
// those that f chooses in one row.
func (s *Store) numbers(f Filter) (tables, letters string, w *where) {
	w = new(where)
	w.and("n.service = ?", asBytes(s.service))
	s.common(w, &f, "c.")
	statuses := f.statuses()
	columns := make([]string, len(statuses))
	for i, status := range statuses {
		columns[i] = "n." + string(status) // validated: one of the constants
	}
	return `spillway_letter_counts AS n JOIN spillway_letter_causes AS c ON c.service = n.service AND c.cause = n.cause`,
		`SUM(` + strings.Join(columns, " + ") + `)`, w
}

// maxCauses is how many causes a statement names. A filter that chooses more is applied to each letter instead.
const maxCauses = MaxListed

// causes returns the causes that have letters which f chooses, at most maxCauses and one more, and the number of these
// letters.
func (s *Store) causes(ctx context.Context, f Filter) (causes []string, letters int, err error) {
	tables, number, w := s.numbers(f)
	err = s.read(ctx, func() { causes, letters = nil, 0 }, func(rows *sql.Rows) error {
		var cause string
		var n int
		err := rows.Scan(&cause, &n)
		causes, letters = append(causes, cause), letters+n
		return err
	}, `SELECT n.cause, `+number+` FROM `+tables+w.String()+` GROUP BY n.cause HAVING `+number+` > 0 LIMIT ?`,
		append(w.args, maxCauses+1)...)
	return causes, letters, err
}
