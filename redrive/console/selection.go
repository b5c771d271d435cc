package console

import (
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// selection is what a person chose on the page of letters: single letters, or all that matched a filter. It travels in
// the URL. All that matched means all that were there when the person saw their number: filter.MaxSeq ends it, so that
// letters which arrive later are not taken.
type selection struct {
	seqs   []int64        // single letters, in ascending order; empty for all that match
	filter letters.Filter // Statuses alone if there are seqs
	number int            // how many the person saw
	// narrowed is set if letters in other states than the person may mean were left out of the filter.
	narrowed bool
}

// The fields of a selection in a URL, beside those of its filter.
const (
	fieldTake   = "take"  // all: the filter, not the boxes
	fieldSeq    = "seq"   // a letter
	fieldUpTo   = "upto"  // filter.MaxSeq
	fieldNumber = "count" // how many the person saw
	fieldSeen   = "seen"  // how many there were at the dry run
)

// parseSelection reads a selection from the query of a URL, or from a form.
func parseSelection(q url.Values, now time.Time) (s selection, err error) {
	if q.Get(fieldTake) != all {
		for _, value := range filled(q[fieldSeq]) {
			seq, err := strconv.ParseInt(value, 10, 64)
			if err != nil || seq <= 0 {
				return s, badInput(text("selection.seq"))
			}
			s.seqs = append(s.seqs, seq)
		}
		slices.Sort(s.seqs)
		s.seqs = slices.Compact(s.seqs)
		if len(s.seqs) == 0 {
			return s, badInput(text("selection.none"))
		}
		if len(s.seqs) > campaigns.MaxSeqs {
			return s, badInput(text("selection.many", len(s.seqs), campaigns.MaxSeqs))
		}
		s.filter.Statuses, s.number = letters.Statuses(), len(s.seqs)
		return s, nil
	}
	if s.filter, err = parseFilter(q, now); err != nil {
		return s, err
	}
	s.filter.MaxSeq, err = strconv.ParseInt(q.Get(fieldUpTo), 10, 64)
	if err != nil || s.filter.MaxSeq <= 0 {
		return s, badInput(text("selection.upto"))
	}
	if s.number, err = strconv.Atoi(q.Get(fieldNumber)); err != nil || s.number <= 0 {
		return s, badInput(text("selection.upto"))
	}
	return s, nil
}

// values is the query of the selection: parseSelection reads the same selection from it, at any time.
func (s selection) values() url.Values {
	if len(s.seqs) > 0 {
		q := url.Values{}
		for _, seq := range s.seqs {
			q.Add(fieldSeq, id(seq))
		}
		return q
	}
	q := filterValues(s.filter)
	q.Set(fieldTake, all)
	q.Set(fieldUpTo, id(s.filter.MaxSeq))
	q.Set(fieldNumber, strconv.Itoa(s.number))
	return q
}

// request is the selection as a campaign takes it.
func (s selection) request() campaigns.Request {
	return campaigns.Request{Filter: s.filter, Seqs: slices.Clone(s.seqs)}
}
