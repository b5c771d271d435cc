package keytable

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
)

// Forgetting says which keys are forgotten, and how.
type Forgetting struct {
	Service string
	IDs     []string // as in the column
	Remove  bool
	DryRun  bool
}

const (
	forgetAtOnce  = 200
	forgetTimeout = 30 * time.Second
	outputsAtOnce = 2000
)

// Forget removes the keys of a service that have one of the ids, whatever their consumer is, or takes the outputs and
// the fingerprint from them. It returns how many there are, and how many others are under a lease, which it leaves
// alone.
func Forget(ctx context.Context, db *database.Database, f Forgetting) (keys, held int, err error) {
	consumers, err := consumersOf(ctx, db, f.Service)
	for _, consumer := range consumers {
		for some := range slices.Chunk(f.IDs, forgetAtOnce) {
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
		err := db.Query(ctx, func() { found = false }, func(rows *sql.Rows) error { found = true; return rows.Scan(&next) },
			db.Statement(`SELECT consumer FROM spillway_keys WHERE consumer > ? ORDER BY consumer LIMIT 1`), db.Text(last))
		if err != nil || !found || !strings.HasPrefix(next, prefix) {
			return all, err
		}
		all, last = append(all, next), next
	}
}

// CountOutputs counts the keys of a service that have recorded outputs, apart from those with one of the ids. It reads
// ids alone, some at once.
func CountOutputs(ctx context.Context, db *database.Database, service string,
	except map[string]struct{}) (n int, err error) {
	consumers, err := consumersOf(ctx, db, service)
	for _, consumer := range consumers {
		last, seen, found := "", outputsAtOnce, 0
		for err == nil && seen == outputsAtOnce {
			from := last
			err = db.Query(ctx, func() { seen, found = 0, 0 }, func(rows *sql.Rows) error {
				recorded := false
				err := rows.Scan(&last, &recorded)
				if _, known := except[last]; recorded && !known {
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
	f *Forgetting) (keys, held int, err error) {
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
		n, err := deleted(tx.ExecContext(ctx, db.Statement(change+of+` AND (expires_at IS NULL OR expires_at <= now_ms())`),
			args...))
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, look, args...)
		if err == nil {
			err = database.Each(rows, count)
		}
		if f.Remove {
			keys = n
		}
		return err
	})
	return keys, held, err
}
