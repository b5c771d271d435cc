package operate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Deciding is a decision about letters that a person may send twice.
type Deciding struct {
	What Decision
	Selection
	// ID is that of its record. What was done under it is not done again. Without one nothing is known of a request
	// before.
	ID string
	// TakenUp lets a person take it up again with another reason.
	TakenUp bool
	// Seen is the number of letters that the person saw, or nil. If more match, nothing is changed.
	Seen *int
	// Step is how long this call may take, and Counting how long it may count.
	Step, Counting time.Duration
}

// MoreMatch is the error of a selection that has more letters than the person saw. Nothing was changed.
type MoreMatch struct{ Now int }

func (m *MoreMatch) Error() string {
	return fmt.Sprintf("%d letters match now, more than were seen", m.Now)
}

// ErrNothing is the error of a decision that no letter of the selection is in a state for.
var ErrNothing = errors.New("no letter of the selection is in a state that this takes")

// Carry carries out a decision. It returns how many letters this call changed, also with an error. It is cut if its
// time was over when some letters were changed and not all: the same call goes on.
func (d *Desk) Carry(ctx context.Context, who Person, do Deciding) (n int, cut bool, err error) {
	if err := who.allowed(Act); err != nil {
		return 0, false, err
	}
	act := who.act()
	act.RedriveID = do.ID
	did := func() (bool, error) {
		if do.TakenUp && do.ID != "" {
			events, err := d.Decided(ctx, do.ID)
			return len(events) > 0, err
		}
		return d.did(ctx, act)
	}
	before, err := did()
	if err == nil && !before {
		err = d.noMore(ctx, do.Selection, do.Seen, 0, do.Counting)
	}
	if err != nil {
		return 0, false, err
	}
	timed, cancel := context.WithTimeout(ctx, do.Step)
	defer cancel()
	n, err = d.Decide(timed, who, do.What, do.Selection, do.ID)
	switch {
	case err != nil && n > 0 && timed.Err() != nil && ctx.Err() == nil:
		return n, true, nil
	case err != nil || n > 0 || before:
		return n, false, err
	}
	if before, err = did(); err == nil && !before { // else the other of two was first
		err = ErrNothing
	}
	return 0, false, err
}

// noMore returns an error if more letters match than a person saw. Letters beyond most, if it is not 0, are not taken.
func (d *Desk) noMore(ctx context.Context, s Selection, seen *int, most int, counting time.Duration) error {
	if seen == nil || most > 0 && *seen >= most {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, counting)
	defer cancel()
	if n := d.Count(ctx, s); n.Known() && n.N() > *seen {
		return &MoreMatch{n.N()}
	}
	return nil
}
