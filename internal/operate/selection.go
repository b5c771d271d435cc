package operate

import (
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Selection is what a person chose: single letters, or all that matched a filter. All that matched means all that were
// there when the person saw their number: Filter.MaxSeq ends it, so that letters which arrive later are not taken.
type Selection struct {
	Seqs   []int64        // single letters, in ascending order; empty for all that match
	Filter letters.Filter // Statuses alone if there are Seqs
	Number int            // how many the person saw
	// Narrowed is set if letters in other states than the person may mean were left out of the filter.
	Narrowed bool
}

// The fields of a selection, beside those of its filter.
const (
	fieldTake   = "take"  // all: the filter, not the boxes
	fieldSeq    = "seq"   // a letter
	fieldUpTo   = "upto"  // Filter.MaxSeq
	fieldNumber = "count" // how many the person saw
)

// SelectionFields are the fields of a selection, beside those of its filter.
var SelectionFields = []string{fieldTake, fieldSeq, fieldUpTo, fieldNumber}

// ParseSelection reads a selection from values by the names of its fields.
func ParseSelection(q url.Values, now time.Time) (s Selection, err error) {
	if q.Get(fieldTake) != All {
		return parseSeqs(q[fieldSeq])
	}
	if s.Filter, err = ParseFilter(q, now); err != nil {
		return s, err
	}
	upTo, wrongUpTo := strconv.ParseInt(q.Get(fieldUpTo), 10, 64)
	number, wrongNumber := strconv.Atoi(q.Get(fieldNumber))
	if wrongUpTo != nil || wrongNumber != nil || upTo <= 0 || number <= 0 {
		return s, &Wrong{Why: "The address does not say which letters were counted. Go back to the list, and choose again."}
	}
	s.Filter.MaxSeq, s.Number = upTo, number
	return s, nil
}

func parseSeqs(values []string) (s Selection, err error) {
	for _, value := range Filled(values) {
		seq, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seq <= 0 {
			return s, &Wrong{Why: "The address names a letter that cannot be one."}
		}
		s.Seqs = append(s.Seqs, seq)
	}
	return SelectionOf(s.Seqs)
}

// SelectionOf selects single letters.
func SelectionOf(seqs []int64) (s Selection, err error) {
	s.Seqs = slices.Compact(slices.Sorted(slices.Values(seqs)))
	switch n := len(s.Seqs); {
	case n == 0:
		return s, &Wrong{Why: "No letter is chosen. Go back and check the boxes of some letters."}
	case s.Seqs[0] < 1:
		return s, wrong("seqs", "has %d: a Seq is 1 or more", s.Seqs[0])
	case n > campaigns.MaxSeqs:
		return s, wrong("", "%d letters are chosen one by one, and %d are possible. Choose all that match a filter instead.",
			n, campaigns.MaxSeqs)
	}
	s.Filter.Statuses, s.Number = letters.Statuses(), len(s.Seqs)
	return s, nil
}

// Values are the values of the selection: ParseSelection reads the same selection from them, at any time.
func (s Selection) Values() url.Values {
	if len(s.Seqs) > 0 {
		q := url.Values{}
		for _, seq := range s.Seqs {
			q.Add(fieldSeq, strconv.FormatInt(seq, 10))
		}
		return q
	}
	q := FilterValues(s.Filter)
	q.Set(fieldTake, All)
	q.Set(fieldUpTo, strconv.FormatInt(s.Filter.MaxSeq, 10))
	q.Set(fieldNumber, strconv.Itoa(s.Number))
	return q
}

// Campaign is the selection as a campaign takes it.
func (s Selection) Campaign() campaigns.Request {
	return campaigns.Request{Filter: s.Filter, Seqs: slices.Clone(s.Seqs)}
}

// Only is the selection with letters of some states. It reports whether any state is left.
func (s Selection) Only(states []letters.Status) (Selection, bool) {
	some, all := Among(s.Filter.Statuses, states)
	if !all {
		s.Filter.Statuses = slices.DeleteFunc(slices.Clone(s.Filter.Statuses), func(status letters.Status) bool {
			return !slices.Contains(states, status)
		})
	}
	return s, some
}

// Among reports whether some, and whether all of the states of a filter are among others. Without states a filter
// chooses what waits.
func Among(statuses, others []letters.Status) (some, all bool) {
	if len(statuses) == 0 {
		statuses = []letters.Status{letters.StatusWaiting}
	}
	all = true
	for _, status := range statuses {
		is := slices.Contains(others, status)
		some, all = some || is, all && is
	}
	return some, all
}

// parts are the filters that choose the letters of the selection: one, or one for each single letter.
func (s Selection) parts() []letters.Filter {
	if len(s.Seqs) == 0 {
		return []letters.Filter{s.Filter}
	}
	parts := make([]letters.Filter, len(s.Seqs))
	for i, seq := range s.Seqs {
		parts[i] = letters.Filter{After: seq - 1, MaxSeq: seq, Statuses: s.Filter.Statuses}
	}
	return parts
}
