package keytable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Place is where a delivery stands in its source. The zero value is of none that has an order.
type Place struct {
	Source   string // a hash, see package sequence
	Position int64
	Redrives int64
}

func (p *Place) isSet() bool { return p.Source != "" }

func (p *Place) args() []any { return []any{[]byte(p.Source), p.Position, p.Redrives} }

// settled is the record of a key that was not taken over: it absorbs the delivery, or is leased.
func (d *Dialect) settled(ctx context.Context, q Querier, row Row, record *Record) (*Record, error) {
	if !row.Place.isSet() {
		return nil, ErrHeld
	}
	absorbs, err := d.Absorbs(ctx, q, row)
	switch {
	case err != nil:
		return nil, err
	case !absorbs:
		return nil, ErrHeld
	}
	return &Record{Fingerprint: record.Fingerprint, Settled: true}, nil
}

// Absorbs reports whether the key is settled without an effect, at the row's place or further on.
func (d *Dialect) Absorbs(ctx context.Context, q Querier, row Row) (bool, error) {
	n := 0
	err := q.QueryRowContext(ctx, d.absorbs, append([]any{d.text(row.Consumer), d.text(row.ID)},
		row.Place.args()...)...).Scan(&n)
	return n > 0, err
}

// Settle writes that the message of a row ended at its place without an effect. It returns what is recorded if the key
// was applied, and ErrHeld if it is leased. While another transaction holds the key it waits for that, until ctx ends.
func Settle(ctx context.Context, db *database.Database, row Row) (applied *Record, err error) {
	d := DialectOf(db.Kind())
	err = db.Write(ctx, func(tx *sql.Tx) (err error) {
		applied, err = d.Settle(ctx, tx, row)
		return err
	})
	if err != nil && !errors.Is(err, ErrHeld) {
		err = fmt.Errorf("%s: settle a key: %w", db.Kind(), err)
	}
	return applied, err
}

// Settle is the same in a transaction.
func (d *Dialect) Settle(ctx context.Context, tx Querier, row Row) (*Record, error) {
	for try := 1; ; try++ {
		place := row.Place.args()
		settled, err := d.change(ctx, tx, d.settle,
			append([]any{d.text(row.Consumer), d.text(row.ID), row.At, row.Fingerprint, row.Nonce}, place...)...)
		if err != nil && (d.duplicate == nil || !d.duplicate(err)) || settled {
			return nil, err
		}
		record, free, err := d.Find(ctx, tx, row)
		if errors.Is(err, sql.ErrNoRows) && try < maxEnter { // it was purged in between
			continue
		}
		if err != nil {
			return nil, err
		}
		if free {
			return record, nil
		}
		if absorbs, err := d.Absorbs(ctx, tx, row); err != nil || absorbs {
			return nil, err
		}
		settled, err = d.change(ctx, tx, d.settleOn, append(append([]any{row.At, row.Fingerprint}, place...),
			d.text(row.Consumer), d.text(row.ID))...)
		if err == nil && !settled {
			err = ErrHeld
		}
		return nil, err
	}
}
