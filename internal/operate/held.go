package operate

import (
	"context"
	"errors"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/middleware/breaker/sqlshare"
)

// Planned is how many letters a dry run reads at most. Of more it counts the first ones, and says so.
const Planned = 5_000

// ErrNoOutages is the error of a service whose breakers share nothing in the database of the letters.
var ErrNoOutages = errors.New("the breakers of this service share no outages in the database of its letters: set " +
	"Config.Breaker.Store to a store of sqlshare.NewStore there")

// outages opens what the breakers share. It makes no table.
func (d *Desk) outages(ctx context.Context) (*sqlshare.Store, error) {
	tables, err := d.Tables(ctx)
	if err != nil {
		return nil, err
	}
	if tables["outages"] == 0 {
		return nil, ErrNoOutages
	}
	db, service := d.on()
	return sqlshare.NewStore(ctx, db, service)
}

// Outages returns the outages and freezes that the instances share, with texts that are not masked.
func (d *Desk) Outages(ctx context.Context) ([]circuit.Status, error) {
	store, err := d.outages(ctx)
	if err != nil {
		return nil, err
	}
	all, err := store.List(ctx)
	return all, err
}

// Held are handlers whose messages are held, as they may be shown.
func (d *Desk) Held(all []circuit.Status) []circuit.Status {
	for i := range all {
		d.mask(&all[i].Reason, &all[i].Cause, &all[i].Scope)
	}
	return all
}

// Hold freezes a handler in all instances, or all handlers without a name, or ends that. It reports false if there was
// no freeze to end, and if a request of the person's key did it before.
func (d *Desk) Hold(ctx context.Context, who Person, handler string, hold bool) (changed bool, err error) {
	if err := who.allowed(Act); err != nil {
		return false, err
	}
	if database.Column(handler) != handler {
		return false, WrongValue("handler", handler, "a name has at most 255 bytes of readable text")
	}
	act, of := who.once(heldBy), "all handlers"
	if handler != "" {
		of = "the handler " + handler
	}
	if act.Detail = "released: " + of; hold {
		act.Detail = "held: " + of
	}
	if done, err := d.did(ctx, act); done || err != nil {
		return false, err
	}
	store, err := d.outages(ctx)
	if err != nil {
		return false, err
	}
	if changed = true; hold {
		err = store.Freeze(ctx, handler, who.Reason, who.Name)
	} else {
		changed, err = store.Release(ctx, handler, who.Reason, who.Name)
	}
	if err == nil && changed && d.Store != nil {
		err = hidden.Of(d.Store).RecordFreeze(ctx, act)
	}
	return changed, err
}
