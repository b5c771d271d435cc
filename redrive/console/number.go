package console

import (
	"context"
	"net/url"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// fieldExact is the field of an address that asks for a number, however long it takes.
const fieldExact = "exact"

// patience is how long a page waits for a number that a person decides by: longer than a list does, and longest if the
// person asks.
func (c *console) patience(r *request, usual time.Duration) time.Duration {
	if r.query.Get(fieldExact) != "" {
		return c.timeout / 4
	}
	return usual
}

// careful is how much longer than a list the page of a decision waits for a number.
const careful = 10

// chosen counts the letters of a selection that are there now, for a decision about them.
func (c *console) chosen(r *request, s operate.Selection) operate.Number {
	return c.chosenWithin(r, s, careful*c.counting)
}

// chosenWithin counts the letters of a selection that are there now, if that does not take longer.
func (c *console) chosenWithin(r *request, s operate.Selection, usual time.Duration) operate.Number {
	ctx, cancel := context.WithTimeout(r.http.Context(), c.patience(r, usual))
	defer cancel()
	return c.desk.Count(ctx, s)
}

// numberOf counts what a filter chooses, if that does not take long.
func (c *console) numberOf(r *request, f letters.Filter) operate.Number {
	return c.chosen(r, operate.Selection{Filter: f})
}

// exactLink is the address of a page that counts, however long it takes.
func (r *request) exactLink(path string, q url.Values) string {
	return r.link(path, merged(q, url.Values{fieldExact: {"1"}}))
}
