package operate

import (
	"context"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Number is how many letters there are, or that it is not known. What was counted when the time was over is no number,
// so a number that is not known has none to show.
type Number struct {
	n     int
	known bool
}

// Exactly is a number that is known.
func Exactly(n int) Number { return Number{n, true} }

// Known reports whether the number is known.
func (n Number) Known() bool { return n.known }

// N is the number. A face that shows it without asking Known fails: an answer without a number is better than a wrong
// one.
func (n Number) N() int {
	if !n.known {
		panic("operate: a number that is not known is shown")
	}
	return n.n
}

// None reports whether it is known that there is no letter.
func (n Number) None() bool { return n.known && n.n == 0 }

// Some reports whether it is known that there are letters.
func (n Number) Some() bool { return n.known && n.n > 0 }

// Count counts the letters of a selection that are there now, if that is done before ctx ends.
func (d *Desk) Count(ctx context.Context, s Selection) Number {
	sum := 0
	for _, f := range s.parts() {
		n, err := d.Store.Count(ctx, f)
		if err != nil {
			return Number{}
		}
		sum += n
	}
	return Exactly(sum)
}

// Freeze selects the letters that a filter chooses now: those up to the last Seq. Letters that arrived while they were
// counted would be in the number and not in the selection, so it counts again then.
func (d *Desk) Freeze(ctx context.Context, f letters.Filter) (s Selection, err error) {
	s.Filter = f
	for range 3 {
		if s.Filter.MaxSeq, err = d.Store.Inside().LastSeq(ctx); err != nil {
			return s, err
		}
		if s.Number, err = d.Store.Count(ctx, f); err != nil { // the numbers of causes answer, and no letter is read
			return s, err
		}
		if again, err := d.Store.Inside().LastSeq(ctx); err != nil || again == s.Filter.MaxSeq {
			return s, err
		}
	}
	s.Number, err = d.Store.Count(ctx, s.Filter) // letters arrive all the time: count those up to the last one
	return s, err
}

// Sample returns the first letters of a selection.
func (d *Desk) Sample(ctx context.Context, s Selection, most int) (heads []letters.Head, err error) {
	parts := s.parts()
	if len(s.Seqs) > 0 {
		parts = parts[:min(len(parts), most)]
	}
	for _, f := range parts {
		f.Limit = most
		some, err := d.Store.Heads(ctx, f)
		if err != nil {
			return heads, err
		}
		heads = append(heads, some...)
	}
	return heads, nil
}
