package console

import (
	"context"
	"errors"

	"github.com/watermill-spillway/spillway/internal/operate"
)

// held is who works on letters of a selection, or is about to.
type held struct {
	operate.Held
	Campaigns []heldBy
	Slow      bool // it was not found out in time
}

// heldBy is a campaign with letters of a selection.
type heldBy struct {
	Letters                     int
	Link, ID, State, By, Reason string
}

// heldOf says who has letters of a selection.
func (c *console) heldOf(r *request, s operate.Selection) (h held, err error) {
	ctx, cancel := context.WithTimeout(r.http.Context(), careful*c.counting)
	defer cancel()
	h.Held, err = c.desk.Held(ctx, s)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && r.http.Context().Err() == nil {
		return held{Slow: true}, nil
	}
	for _, by := range h.Held.Campaigns {
		h.Campaigns = append(h.Campaigns, heldBy{by.Letters, r.link("campaigns/"+by.ID, nil), by.ID,
			operate.StateWords(by.State), by.Request.By, by.Request.Reason})
	}
	return h, err
}
