package operate

import (
	"context"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// What the ids of records begin with that are no campaigns: requests that a program may send twice.
const (
	shownBy   = "shown-"
	decidedBy = "sequence-"
)

// IsRequest reports whether the id of a record is that of a request, and of no campaign.
func IsRequest(id string) bool {
	return strings.HasPrefix(id, shownBy) || strings.HasPrefix(id, decidedBy)
}

// did reports whether the record has an entry under the id of an act. It is an error if another act has it.
func (d *Desk) did(ctx context.Context, act letters.Act) (bool, error) {
	events, err := d.Decided(ctx, act.RedriveID)
	if err != nil || len(events) == 0 {
		return false, err
	}
	return true, Same(act.RedriveID, events[0].Act, act)
}

// Same returns an error if a record under an id is of another person, or for another reason.
func Same(id string, recorded, act letters.Act) error {
	if recorded.By != act.By || recorded.Reason != act.Reason {
		return fmt.Errorf("%w: %s is on record with another name or reason", inside.ErrKeyReused, id)
	}
	return nil
}
