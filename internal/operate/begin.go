package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Starting is how long the start of a campaign may take. It does not end with the request: a worker would have to go
// on.
const Starting = 25 * time.Second

// Beginning is a campaign that a person may ask for twice: the ID of its request says which one it is.
type Beginning struct {
	campaigns.Request
	// Seen is the number of letters that the person saw, or nil. If more match, nothing is started.
	Seen *int
	// Counting is how long the letters may be counted.
	Counting time.Duration
}

// Begin starts a campaign in the name of a person, once. With campaigns.ErrNoLetters and inside.ErrKeyReused it returns
// the campaign that has the ID. Late is why the selection of a campaign broke off that has begun: a worker goes on.
func (d *Desk) Begin(ctx context.Context, who Person, b Beginning) (c campaigns.Campaign, late, err error) {
	if err := who.allowed(Act); err != nil {
		return c, nil, err
	}
	if _, err := d.Campaigns.Get(ctx, b.ID); errors.Is(err, campaigns.ErrNotFound) {
		if err := d.noMore(ctx, Selection{Seqs: b.Seqs, Filter: b.Filter}, b.Seen, b.Max, b.Counting); err != nil {
			return c, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Starting)
	defer cancel()
	c, err = d.Start(ctx, who, b.Request)
	switch none := errors.Is(err, campaigns.ErrNoLetters); {
	case c.ID == "":
		return c, nil, err
	case (err == nil || none) && !sameRequest(&c.Request, &b.Request, who):
		return c, nil, fmt.Errorf("%w: campaign %s", inside.ErrKeyReused, c.ID)
	case none:
		return c, nil, err
	}
	return c, err, nil
}

// Changed is the error of a letter that is not as the person saw it.
type Changed struct{ Letter letters.Letter }

func (c *Changed) Error() string {
	return "the letter has changed: it is " + StatusWords(c.Letter.Status)
}

// BeginEdited is Begin for one letter, of the version that the person saw.
func (d *Desk) BeginEdited(ctx context.Context, who Person, l letters.Letter, version string,
	r campaigns.Request) (c campaigns.Campaign, late, err error) {
	r.Seqs, r.Filter = []int64{l.Seq}, letters.Filter{Statuses: []letters.Status{l.Status}}
	switch before, err := d.Campaigns.Get(ctx, r.ID); {
	case err == nil: // the letter may have changed by that
		r.Filter = before.Request.Filter
	case version != VersionOf(l):
		return c, nil, &Changed{l}
	}
	return d.Begin(ctx, who, Beginning{Request: r})
}

// sameRequest reports whether a person asks for the campaign that has the ID. What has a default is compared if the
// person gave it. A time to begin counts from now, and is not compared.
func sameRequest(is, asked *campaigns.Request, who Person) bool {
	return is.By == who.Name && is.Reason == who.Reason && is.Rate == asked.Rate && is.Max == asked.Max &&
		is.Canary == asked.Canary && is.To == asked.To && is.FirstStage == asked.FirstStage &&
		is.HandleAgain == asked.HandleAgain && is.ResumeAfter == asked.ResumeAfter &&
		given(is.CanaryWait, asked.CanaryWait) && given(is.StopAt, asked.StopAt) &&
		given(is.StopAfter, asked.StopAfter) && given(is.Concurrency, asked.Concurrency) &&
		given(is.Approval, asked.Approval) && sameJSON(is.Edit, asked.Edit) && sameJSON(is.Filter, asked.Filter) &&
		slices.Equal(is.Seqs, slices.Compact(slices.Sorted(slices.Values(asked.Seqs))))
}

// given reports whether a value is what was asked for, if it was.
func given[T comparable](is, asked T) bool {
	var none T
	return asked == none || is == asked
}

func sameJSON(a, b any) bool {
	one, errA := json.Marshal(a)
	other, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(one, other)
}
