package database

import (
	"context"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// OwnKeyError says that a database numbers new rows of a table of ours from a counter behind the rows: a restore
// of data alone, logical replication or a change of servers can leave it there. It is about us and about no message, so
// package outage holds the message.
type OwnKeyError struct {
	Table, Column string
	Remedy        string // a statement that sets the counter right
	err           error
}

func (e *OwnKeyError) Error() string {
	text := fmt.Sprintf("the sequence of %s.%s is behind the rows of the table: run %s", e.Table, e.Column, e.Remedy)
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *OwnKeyError) Unwrap() error { return e.err }

// OwnFault marks an error that is about a store, whatever code the database gave it.
func (*OwnKeyError) OwnFault() {}

// OwnKey returns err, of a statement that inserts rows into tables. If the number that the database gave to a row of
// one of them is taken, it returns an *OwnKeyError around err. The statement must not ignore conflicts of its primary
// keys: a conflict clause names another index, and on MySQL there is none, because none can name an index. MariaDB does
// not say of which table a key is: there it is the first one.
func (d *Database) OwnKey(err error, tables ...schema.Table) error {
	if err == nil {
		return nil
	}
	for _, t := range tables {
		if d.engine.PrimaryTaken(err, t) {
			return d.ownKey(t, err)
		}
	}
	return err
}

// OwnKeyBehind returns an *OwnKeyError if the counter of a table is behind its rows, for programs that look for such
// faults before a statement meets one. It returns nil if it may not look.
func (d *Database) OwnKeyBehind(ctx context.Context, t schema.Table) error {
	behind, err := d.engine.Behind(ctx, d.db, t)
	switch {
	case err != nil && d.engine.MayNot(err):
		return nil
	case err != nil:
		return fmt.Errorf("ask for the sequence of %s: %w", t.Name, err)
	case behind:
		return d.ownKey(t, nil)
	}
	return nil
}

func (d *Database) ownKey(t schema.Table, err error) error {
	return &OwnKeyError{Table: t.Name, Column: t.Key[0], Remedy: d.engine.Renumber(t), err: err}
}

// IsTaken reports whether err says that a row with the same unique key is there, for a statement of MySQL that has no
// conflict clause. Ask OwnKey first.
func (d *Database) IsTaken(err error) bool { return d.engine.Taken(err) }
