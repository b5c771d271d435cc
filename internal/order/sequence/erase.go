package sequence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// Erasing says which parked messages are removed for good.
type Erasing struct {
	Match  func(id string, metadata map[string]string) bool
	DryRun bool
	// Removed is called with the ids of messages that were removed, outside of any transaction.
	Removed func(ctx context.Context, ids []string) error
}

// Eraser is a store of keys beside which messages are parked.
type Eraser interface {
	// EraseParked removes messages, settles their keys, and returns how many there were.
	EraseParked(ctx context.Context, e Erasing) (n int, err error)
}

// eraseAtOnce is how many rows are looked at in one statement.
const eraseAtOnce = 500

// Erase is for an Eraser of the service.
func Erase(ctx context.Context, db *database.Database, service string, e Erasing) (n int, err error) {
	if there, err := db.Has(ctx, table); err != nil || !there {
		return 0, err
	}
	for last, more := int64(0), true; more; {
		var found []erased
		if found, last, more, err = chosen(ctx, db, service, last, e.Match); err != nil {
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
	on, err := database.Detect(ctx, db)
	if err != nil {
		return 0, err
	}
	if there, err := on.Has(ctx, table); err != nil || !there {
		return 0, err
	}
	err = on.Query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&n) },
		on.Statement(`SELECT count(*) FROM spillway_parked WHERE service = ?`), []byte(service))
	return n, err
}
