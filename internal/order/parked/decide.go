package parked

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// Decision is what a person decides about a parked message. It is written on its row, and the owner of the source
// carries it out in the message's lane: so it meets neither the handler nor another decision.
type Decision int

const (
	Undecided Decision = iota
	Release            // it is handled again, now and in its place
	Skip               // it becomes a dead letter, without a call of its handler
	Discard            // it is settled without an effect or a letter
)

func (d Decision) String() string { return [...]string{"undecided", "release", "skip", "discard"}[d] }

// Deciding is a decision of a person.
type Deciding struct {
	What    Decision
	By, Why string
	All     bool // the messages behind it too, that are parked now
	// Record is called in the transaction that writes the decision, with the id of the first message, where it stands,
	// and the number of messages.
	Record func(tx *sql.Tx, id string, first Parked, n int) error
}

var (
	// ErrDecided says that a decision was written before.
	ErrDecided = errors.New("it is decided already")
	// ErrNotHeld says that nothing holds the message.
	ErrNotHeld = errors.New("it is not held")
	// ErrNotFirst says that another message of the sequence comes before.
	ErrNotFirst = errors.New("it is not the first message of its key")
	// ErrNotParked says that there is no such message: it may have been handled meanwhile.
	ErrNotParked = errors.New("no such message waits")
)

const mostWhy = 1 << 10

// Decide writes what a person decided about the first message of a sequence. It returns for how many messages.
func Decide(ctx context.Context, db *sql.DB, service string, seq int64, d Deciding) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, MaxWrite)
	defer cancel()
	on, first, err := find(ctx, db, service, seq)
	switch {
	case err != nil:
		return 0, err
	case first.Seq != seq:
		return 0, fmt.Errorf("%w: %d is", ErrNotFirst, first.Seq)
	case first.Decided != "":
		return 0, fmt.Errorf("%w: %s, by %s at %s", ErrDecided, first.Decided, first.By,
			first.DecidedAt.Format(time.DateTime))
	case d.What == Release && !first.Held:
		return 0, ErrNotHeld
	}
	which, of := `seq = ?`, []any{seq}
	if d.All {
		which, of = `source = ? AND lane = ? AND seq >= ?`, []any{first.source, first.lane, seq}
	}
	statement := on.Statement(`UPDATE spillway_parked SET decision = ?, decided_at = now_us(), decided_by = ?, decided_why = ?
WHERE decision = 0 AND ` + which)
	args := append([]any{int(d.What), []byte(shown([]byte(d.By))), []byte(boundedtext.Text(d.Why, mostWhy))}, of...)
	err = on.Write(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		changed, err := result.RowsAffected()
		if n = int(changed); err != nil || n == 0 {
			return err
		}
		return d.Record(tx, first.id, first, n)
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: something happened to it meanwhile", ErrNotParked)
	}
	return n, err
}

// find returns the first message of the sequence of a message.
func find(ctx context.Context, db *sql.DB, service string, seq int64) (on *database.Database, first Parked, err error) {
	if on, err = within(ctx, db); on == nil {
		return nil, first, cmp.Or(err, ErrNotParked)
	}
	all, err := list(ctx, on, service,
		` WHERE (p.source, p.lane) IN (SELECT source, lane FROM spillway_parked WHERE seq = ?)`, 1, seq)
	if err == nil && len(all) == 0 {
		err = ErrNotParked
	}
	if err != nil {
		return nil, first, err
	}
	return on, all[0], nil
}

// Erasing says which parked messages are removed for good.
type Erasing struct {
	Match  func(id string, metadata map[string]string) bool
	DryRun bool
	// Removed is called with the ids of messages that were removed, outside of any transaction.
	Removed func(ctx context.Context, ids []string) error
}

// eraseAtOnce is how many rows are looked at in one statement.
const eraseAtOnce = 500

// Erase removes messages that are parked beside keys, settles their keys, and returns how many there were.
func Erase(ctx context.Context, beside keytable.Keys, e Erasing) (n int, err error) {
	db := beside.On
	if there, err := db.Has(ctx, keytable.Parked); err != nil || !there {
		return 0, err
	}
	for last, more := int64(0), true; more; {
		var found []erased
		if found, last, more, err = chosen(ctx, db, beside.Service, last, e.Match); err != nil {
			break
		}
		var ids []string
		for _, row := range found {
			if ids = append(ids, row.id); e.DryRun {
				continue
			}
			if err = row.erase(ctx, db); err != nil {
				return n, fmt.Errorf("erase parked messages, after %d: %w", n, err)
			}
			n++
		}
		if e.DryRun {
			n += len(found)
		}
		if e.Removed != nil && len(ids) > 0 {
			if err = e.Removed(ctx, ids); err != nil {
				break
			}
		}
	}
	return n, err
}

// erased is a row to be erased.
type erased struct {
	seq int64
	id  string
	key keytable.Row
}

func chosen(ctx context.Context, db *database.Database, service string, after int64,
	match func(string, map[string]string) bool) (found []erased, last int64, more bool, err error) {
	seen := 0
	err = db.Query(ctx, func() { found, seen = nil, 0 }, func(rows *sql.Rows) error {
		var row erased
		var consumer, key, id, metadata, source []byte
		var place keytable.Place
		if err := rows.Scan(&row.seq, &consumer, &key, &id, &metadata, &source, &place.Position,
			&place.Redrives); err != nil {
			return err
		}
		seen, last = seen+1, row.seq
		read, err := metadatacodec.Read(metadata)
		if err != nil { // damaged: it is found by its id
			read = nil
		}
		if row.id = string(id); match(row.id, read) {
			place.Source = string(source)
			row.key = keytable.NewRow("", "", nil, 0, false)
			row.key.Consumer, row.key.ID, row.key.Place = string(consumer), string(key), place
			found = append(found, row)
		}
		return nil
	}, db.Statement(`SELECT seq, consumer, key_id, id, metadata, source, position, redrives FROM spillway_parked
WHERE service = ? AND seq > ? ORDER BY seq LIMIT ?`), []byte(service), after, eraseAtOnce)
	return found, last, seen == eraseAtOnce, err
}

// erase settles the key first: the message may come again from the source, behind later ones.
func (r *erased) erase(ctx context.Context, db *database.Database) error {
	if r.key.Consumer != "" {
		if _, err := keytable.Settle(ctx, db, r.key); err != nil && !errors.Is(err, keytable.ErrHeld) {
			return err
		}
	}
	_, err := db.Exec(ctx, db.Statement(`DELETE FROM spillway_parked WHERE seq = ?`), r.seq)
	return err
}

// Left returns how many messages of a service are parked in db, which need not have the table.
func Left(ctx context.Context, db *sql.DB, service string) (n int, err error) {
	on, err := within(ctx, db)
	if on == nil {
		return 0, err
	}
	err = on.Query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&n) },
		on.Statement(`SELECT count(*) FROM spillway_parked WHERE service = ?`), []byte(service))
	return n, err
}
