// Package forget takes from keys what came of messages, for package erasure: no other program compiles it.
package forget

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// Request says which keys are forgotten, and how.
type Request struct {
	Keys   []string // of every handler of the store's service, as ReceiverConfig.Key returns them
	Remove bool
	DryRun bool
}

var errHeld = errors.New("the message's own transaction holds the database: call outside of the handler")

const (
	forgetAtOnce  = 200
	forgetTimeout = 30 * time.Second
	outputsAtOnce = 2000
)

// Keys takes the outputs and the fingerprint from keys, or removes the keys, in transactions of at most 200 keys. An
// output that was not published yet is then never published. It returns how many keys there are, and how many others
// stay as they were because a handler has leased them.
func Keys(ctx context.Context, k keytable.Keys, f Request) (keys, held int, err error) {
	db := k.On
	if db.Held(ctx) {
		return 0, 0, fmt.Errorf("%s: forget keys: %w", db.Kind(), errHeld)
	}
	ids := make([]string, len(f.Keys))
	for i, key := range f.Keys {
		ids[i] = database.Column(key)
	}
	consumers, err := consumersOf(ctx, db, k.Service)
	for _, consumer := range consumers {
		for some := range slices.Chunk(ids, forgetAtOnce) {
			if err != nil {
				break
			}
			var n, leased int
			n, leased, err = forget(ctx, db, consumer, some, &f)
			keys, held = keys+n, held+leased
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: forget keys, after %d: %w", db.Kind(), keys, err)
	}
	return keys, held, err
}

// consumersOf looks each consumer up by the index: the table may have millions of keys.
func consumersOf(ctx context.Context, db *database.Database, service string) (all []string, err error) {
	prefix := ""
	if service != "" {
		prefix = service + "/"
	}
	for last := prefix; ; {
		next, found := "", false
		err := db.Query(ctx, func() { found = false },
			func(rows *sql.Rows) error { found = true; return rows.Scan(&next) },
			db.Statement(`SELECT consumer FROM spillway_keys WHERE consumer > ? ORDER BY consumer LIMIT 1`),
			db.Text(last))
		if err != nil || !found || !strings.HasPrefix(next, prefix) {
			return all, err
		}
		all, last = append(all, next), next
	}
}

// CountOutputs counts the keys that have recorded outputs, apart from some. It reads all keys of the service, without
// their outputs, in small steps.
func CountOutputs(ctx context.Context, k keytable.Keys, except []string) (n int, err error) {
	db := k.On
	if db.Held(ctx) {
		return 0, fmt.Errorf("%s: count keys with outputs: %w", db.Kind(), errHeld)
	}
	apart := make(map[string]struct{}, len(except))
	for _, key := range except {
		apart[database.Column(key)] = struct{}{}
	}
	consumers, err := consumersOf(ctx, db, k.Service)
	for _, consumer := range consumers {
		last, seen, found := "", outputsAtOnce, 0
		for err == nil && seen == outputsAtOnce {
			from := last
			err = db.Query(ctx, func() { seen, found = 0, 0 }, func(rows *sql.Rows) error {
				recorded := false
				err := rows.Scan(&last, &recorded)
				if _, known := apart[last]; recorded && !known {
					found++
				}
				seen++
				return err
			}, db.Statement(`SELECT id, outputs IS NOT NULL FROM spillway_keys WHERE consumer = ? AND id > ? ORDER BY id LIMIT `+
				strconv.Itoa(outputsAtOnce)), db.Text(consumer), db.Text(from))
			n += found
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: count keys with outputs: %w", db.Kind(), err)
	}
	return n, err
}

// forget is Forget for some keys of a consumer, in one transaction.
func forget(ctx context.Context, db *database.Database, consumer string, ids []string,
	f *Request) (keys, held int, err error) {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	of := ` WHERE consumer = ? AND id IN (?` + strings.Repeat(",?", len(ids)-1) + `)`
	args := []any{db.Text(consumer)}
	for _, id := range ids {
		args = append(args, db.Text(id))
	}
	count := func(rows *sql.Rows) error {
		leased := false
		err := rows.Scan(&leased)
		if leased {
			held++
		} else {
			keys++
		}
		return err
	}
	look := db.Statement(`SELECT expires_at IS NOT NULL AND expires_at > now_ms() FROM spillway_keys` + of)
	if f.DryRun {
		err = db.Query(ctx, func() { keys, held = 0, 0 }, count, look, args...)
		return keys, held, err
	}
	change := `UPDATE spillway_keys SET outputs = NULL, fingerprint = NULL`
	if f.Remove {
		change = `DELETE FROM spillway_keys`
	}
	err = db.Write(ctx, func(tx *sql.Tx) error {
		keys, held = 0, 0
		// It comes first: on SQLite a transaction that has read may be refused when it writes.
		result, err := tx.ExecContext(ctx, db.Statement(change+of+` AND (expires_at IS NULL OR expires_at <= now_ms())`),
			args...)
		if err != nil {
			return err
		}
		err = database.Each(ctx, tx, count, look, args...)
		if err == nil && f.Remove {
			var n int64
			n, err = result.RowsAffected()
			keys = int(n)
		}
		return err
	})
	return keys, held, err
}
