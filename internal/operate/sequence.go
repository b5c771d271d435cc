package operate

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Sequences returns the keys whose messages wait in order, those with the most messages first.
func (d *Desk) Sequences(ctx context.Context, limit int) ([]parked.Parked, error) {
	db, service := d.on()
	return parked.List(ctx, db, service, limit)
}

// Sequence returns a key by its first message, and the messages that wait, at most limit.
func (d *Desk) Sequence(ctx context.Context, seq int64, limit int) (parked.Parked, []parked.Message, error) {
	db, service := d.on()
	return parked.Show(ctx, db, service, seq, limit)
}

// Behind returns how many messages of a letter's key wait in order, and the first one, or 0.
func (d *Desk) Behind(ctx context.Context, origin poison.Origin) (n int, seq int64, err error) {
	partition, err := strconv.ParseInt(cmp.Or(origin.Partition, "0"), 10, 32)
	if err != nil || origin.Key == nil {
		return 0, 0, nil // of no source with an order
	}
	db, service := d.on()
	return parked.Behind(ctx, db, service,
		parked.Source{Group: origin.ConsumerGroup, Topic: origin.Topic, Partition: int32(partition)}, origin.Key)
}

// DecideSequence writes down what a person decided about the first message of a key, or about all of them. The owner of
// its partition carries it out. It returns for how many messages: 0 if a request of the person's key did it before.
func (d *Desk) DecideSequence(ctx context.Context, who Person, seq int64, what parked.Decision,
	all bool) (n int, err error) {
	if err := who.allowed(Act); err != nil {
		return 0, err
	}
	if d.Store == nil {
		return 0, wrong("", "The decision could not be recorded: there are no tables of letters in this database. Name the one that "+
			"has them.")
	}
	db, service := d.on()
	act := who.once(decidedBy)
	same := func(e letters.Event) bool { return strings.HasPrefix(e.Detail, what.String()+" of ") }
	if done, err := d.before(ctx, act, same); done != nil || err != nil {
		return 0, err
	}
	n, err = parked.Decide(ctx, db, service, seq,
		parked.Deciding{What: what, By: who.Name, Why: who.Reason,
			All: all, Record: func(tx *sql.Tx, id string, first parked.Parked, n int) error {
				act.Detail = fmt.Sprintf("%s of %s/%d at %d", what, first.Topic, first.Partition, first.Position)
				if all {
					act.Detail += fmt.Sprintf(", and %d behind it", n-1)
				}
				return hidden.Of(d.Store).RecordSequence(ctx, tx, id, act)
			}})
	if err != nil { // the other of two may have been first
		if done, _ := d.before(ctx, who.once(decidedBy), same); done != nil {
			return 0, nil
		}
	}
	return n, err
}

// Undecided says in words why DecideSequence did nothing, or "" for an error of another sort.
func Undecided(err error) string {
	switch {
	case errors.Is(err, parked.ErrNotParked):
		return "This message does not wait any more. It was handled, or given up, meanwhile."
	case errors.Is(err, parked.ErrNotFirst):
		return "Another message of this key comes before. Messages of a key go in their order: decide about that one."
	case errors.Is(err, parked.ErrDecided):
		return "Something was decided before. The instance that owns the partition carries it out."
	case errors.Is(err, parked.ErrNotHeld):
		return "Nothing holds this message: it is tried again by itself."
	}
	return ""
}

// Waiting says in words what the first message of a key waits for.
func Waiting(p parked.Parked) string {
	switch {
	case p.Decided != "" && p.Late:
		return p.Decided + ", late"
	case p.Decided != "":
		return p.Decided
	case p.Held:
		return "held"
	case p.Late:
		return "late"
	}
	return "waits"
}
