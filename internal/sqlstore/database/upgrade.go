package database

import (
	"context"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Upgrade brings tables to their newest version, forward only, with their rows, and makes those that are not there. A
// table that is at its newest version is not touched: the role then needs no right to create anything. Upgrade may be
// called again, and by many processes at once. A table of that name which is not a store's is an error before anything
// is done to it.
func (d *Database) Upgrade(ctx context.Context, tables ...schema.Table) error {
	if d.db == nil {
		return fmt.Errorf("%s: the *sql.DB is nil: give an open database", d.kind)
	}
	err := d.engine.Require(ctx, d.db)
	for _, table := range tables {
		if err == nil {
			err = d.upgrade(ctx, table)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.kind, postgres.WithRemedy(err))
	}
	return nil
}

func (d *Database) upgrade(ctx context.Context, t schema.Table) error {
	steps, err := t.Steps(string(d.kind))
	if err != nil {
		return err
	}
	var found schema.Found
	var pending []schema.Step
	err = d.Read(ctx, func() (err error) {
		found, pending, err = d.inspect(ctx, d.db, t, steps)
		return err
	})
	if err == nil && len(pending) > 0 {
		err = d.engine.Alone(ctx, d.db, t, func(s schema.Session) error { return d.run(ctx, s, t, steps) })
		if err == nil {
			if found, err = d.describe(ctx, t); err == nil && !found.Exists {
				err = fmt.Errorf("table %q is not there after it was made", t.Name)
			}
		}
	}
	// Without the right to make the record, or to read it, a table that has every column will do.
	if err != nil && !(t.Complete(found) && d.engine.MayNot(err)) {
		return err
	}
	return t.Check(found)
}

// run makes the versions that are pending. It looks again: other processes may have been here meanwhile.
func (d *Database) run(ctx context.Context, s schema.Session, t schema.Table, steps []schema.Step) error {
	_, pending, err := d.inspect(ctx, s, t, steps)
	if err != nil {
		return err
	}
	for _, step := range pending {
		for _, statement := range step.Statements {
			if _, err := s.ExecContext(ctx, statement); err != nil && !d.engine.IsThere(err) {
				return fmt.Errorf("create or upgrade table %q, with %s: %w", t.Name, step.File, err)
			}
		}
	}
	return nil
}

// inspect returns the table and the steps that it needs. A table that is not ours is an error.
func (d *Database) inspect(ctx context.Context, s schema.Session, t schema.Table,
	steps []schema.Step) (f schema.Found, pending []schema.Step, err error) {
	if f, err = d.engine.Describe(ctx, s, t); err != nil {
		return f, nil, fmt.Errorf("read the columns of table %q: %w", t.Name, err)
	}
	if f.Exists {
		if err := t.CheckFirst(f); err != nil {
			return f, nil, err
		}
	}
	recorded, err := d.engine.Recorded(ctx, s, f, t.Component)
	if err != nil {
		return f, nil, fmt.Errorf("read the table spillway_schema: %w", err)
	}
	pending, err = t.Pending(steps, f, recorded)
	return f, pending, err
}

// Has reports whether there is a table of this name. It makes none.
func (d *Database) Has(ctx context.Context, t schema.Table) (bool, error) {
	f, err := d.describe(ctx, t)
	return f.Exists, err
}

func (d *Database) describe(ctx context.Context, t schema.Table) (f schema.Found, err error) {
	err = d.Read(ctx, func() (err error) {
		f, err = d.engine.Describe(ctx, d.db, t)
		return err
	})
	if err != nil {
		err = fmt.Errorf("read the columns of table %q: %w", t.Name, err)
	}
	return f, err
}
