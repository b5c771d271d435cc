package console

import (
	"context"
	"net/url"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// number is how many letters there are, or that it is not known. What was counted when the time was over is no number,
// so a number that is not known has none to show.
type number struct {
	n     int
	known bool
}

func exactly(n int) number { return number{n, true} }

// Known reports whether the number is known.
func (n number) Known() bool { return n.known }

// N is the number. A template that shows it without asking Known fails: an answer without a number is better than a
// wrong one.
func (n number) N() int {
	if !n.known {
		panic("console: a number that is not known is shown")
	}
	return n.n
}

// None reports whether it is known that there is no letter.
func (n number) None() bool { return n.known && n.n == 0 }

// Some reports whether it is known that there are letters.
func (n number) Some() bool { return n.known && n.n > 0 }

// fieldExact is the field of an address that asks for a number, however long it takes.
const fieldExact = "exact"

// patience is how long a page waits for a number that a person decides by: longer than a list does, and longest if the
// person asks.
func (c *Console) patience(r *request, usual time.Duration) time.Duration {
	if r.query.Get(fieldExact) != "" {
		return c.config.Timeout / 4
	}
	return usual
}

// careful is how much longer than a list the page of a decision waits for a number.
const careful = 10

// chosen counts the letters of a selection that are there now, for a decision about them.
func (c *Console) chosen(r *request, s operate.Selection) number {
	return c.chosenWithin(r, s, careful*c.counting)
}

// chosenWithin counts the letters of a selection that are there now, if that does not take longer.
func (c *Console) chosenWithin(r *request, s operate.Selection, usual time.Duration) number {
	ctx, cancel := context.WithTimeout(r.Context(), c.patience(r, usual))
	defer cancel()
	if len(s.Seqs) == 0 {
		n, err := c.store.Count(ctx, s.Filter)
		return number{n, err == nil}
	}
	sum := 0
	for _, seq := range s.Seqs {
		one, err := c.store.Count(ctx, oneLetter(seq, s.Filter.Statuses))
		if err != nil {
			return number{}
		}
		sum += one
	}
	return exactly(sum)
}

// numberOf counts what a filter chooses, if that does not take long.
func (c *Console) numberOf(r *request, f letters.Filter) number {
	return c.chosen(r, operate.Selection{Filter: f})
}

// exactLink is the address of a page that counts, however long it takes.
func (r *request) exactLink(path string, q url.Values) string {
	return r.link(path, merged(q, url.Values{fieldExact: {"1"}}))
}
