package operate

import (
	"context"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// happenedTo is how many letters are looked at to say who was first.
const happenedTo = 50

// Happened is what became of the letters of a selection that an action found changed, for the one who came second.
type Happened struct {
	Gone    bool // they are not there any more
	Various bool // not the same became of all
	letters.Head
}

// Happened says who did what to the letters of a selection.
func (d *Desk) Happened(ctx context.Context, s Selection) (h Happened, err error) {
	s.Filter.Statuses = letters.Statuses()
	heads, err := d.Sample(ctx, s, happenedTo)
	if err != nil || len(heads) == 0 {
		return Happened{Gone: err == nil}, err
	}
	h.Head = heads[0]
	for _, other := range heads[1:] {
		if other.Status != h.Status || other.Marked.By != h.Marked.By || other.Marked.Reason != h.Marked.Reason ||
			other.LeasedBy != h.LeasedBy {
			h.Various = true
		}
	}
	return h, nil
}
