// Package sqlite knows what is particular to SQLite: its SQL, its catalog, the gate that keeps the writers of one
// process in a row, and patience with the writers of other processes. Any database/sql driver will do.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/rerun"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// Engine is what SQLite does in its own way. See the interface in package database.
type Engine struct{}

// SQLite counts milliseconds, and writes them as days.
const nowMS = `CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`

var clock = strings.NewReplacer("now_ms()", nowMS, "now_us()", `(`+nowMS+` * 1000)`)

// Statement spells the clocks.
func (Engine) Statement(text string) string { return clock.Replace(text) }

// Text and Bytes bind text, whatever its bytes are: SQLite does not look at them. Bytes for a BLOB column are bound as
// bytes.
func (Engine) Text(s string) any { return s }

// Bytes is Text.
func (Engine) Bytes(s string) any { return s }

// SkipLocked is empty: one transaction writes at a time.
func (Engine) SkipLocked() string { return "" }

// Write runs work in a transaction, alone among the writers of this process.
func (e Engine) Write(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	return e.Again(ctx, db, func() error { return rerun.Transaction(ctx, db, nil, work) })
}

// Again runs one statement alone among the writers of this process, and again while another process writes.
func (Engine) Again(ctx context.Context, db *sql.DB, statement func() error) error {
	gate := GateOf(db)
	if err := gate.Lock(ctx); err != nil {
		return err
	}
	defer gate.Unlock()
	return WhileBusy(ctx, statement)
}

// Read runs read, and again while a writer of another process is in the way.
func (Engine) Read(ctx context.Context, read func() error) error { return WhileBusy(ctx, read) }

// Planned runs read, and again while a writer of another process is in the way. Each query is planned for its values
// anyway.
func (Engine) Planned(ctx context.Context, db *sql.DB, read func(schema.Session) error) error {
	return WhileBusy(ctx, func() error { return read(db) })
}

// Largest returns 0: the error of a value that is too large says so.
func (Engine) Largest(context.Context, *sql.DB) (int, error) { return 0, nil }

// TooLarge reports whether err is SQLITE_TOOBIG.
func (Engine) TooLarge(err error, _, _ int) bool {
	return strings.Contains(err.Error(), "string or blob too big")
}

// IsThere reports whether a column could not be added because it is there.
func (Engine) IsThere(err error) bool { return strings.Contains(err.Error(), "duplicate column name") }

// MayNot reports whether the file may only be read.
func (Engine) MayNot(err error) bool { return strings.Contains(err.Error(), "readonly database") }

// Taken reports whether a row with the same unique key is there.
func (Engine) Taken(err error) bool { return strings.Contains(err.Error(), "UNIQUE constraint failed") }

// PrimaryTaken returns false, as Behind does: SQLite numbers behind the rows, whatever its counter says.
func (Engine) PrimaryTaken(error, schema.Table) bool { return false }

// Behind returns false.
func (Engine) Behind(context.Context, schema.Session, schema.Table) (bool, error) { return false, nil }

// Renumber returns nothing.
func (Engine) Renumber(schema.Table) string { return "" }

// Gate lets one writer at a time into a database. SQLite has one write lock for the whole file and no queue in front of
// it: a writer that does not get it polls, and of some hundred writers most give up busy. Waiters get the gate in the
// order in which they came.
type Gate struct{ taken chan struct{} }

var gates = struct {
	sync.Mutex
	of map[weak.Pointer[sql.DB]]*Gate
}{of: make(map[weak.Pointer[sql.DB]]*Gate)}

// GateOf returns the gate of db, which must not be nil: always the same one. The gate does not keep db
// alive, and is forgotten with it.
func GateOf(db *sql.DB) *Gate {
	key := weak.Make(db)
	gates.Lock()
	defer gates.Unlock()
	if g, ok := gates.of[key]; ok {
		return g
	}
	g := newGate()
	gates.of[key] = g
	runtime.AddCleanup(db, forget, key)
	return g
}

func newGate() *Gate { return &Gate{taken: make(chan struct{}, 1)} }

func forget(key weak.Pointer[sql.DB]) {
	gates.Lock()
	defer gates.Unlock()
	delete(gates.of, key)
}

// Lock waits for the gate, or for the end of ctx, whose error it then wraps.
func (g *Gate) Lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlite: wait for the writers' gate: %w", err)
	}
	select {
	case g.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sqlite: wait for the writers' gate: %w", ctx.Err())
	}
}

// Unlock lets the next writer in. It need not be called by the goroutine that called Lock. Like that of a sync.Mutex it
// panics when the gate is free.
func (g *Gate) Unlock() {
	select {
	case <-g.taken:
	default:
		panic("sqlite: unlock of a gate that is free")
	}
}

const (
	firstPause = time.Millisecond
	maxPause   = 50 * time.Millisecond
	// maxBusy bounds the wait for a writer of another process, because a writer that waits holds the gate of this one.
	maxBusy = 30 * time.Second
)

// WhileBusy calls try again as long as its error is that another process holds a lock. It gives up with the last error
// after 30 seconds. When ctx ends it gives up with an error that wraps both. A try that fails must leave nothing
// behind.
func WhileBusy(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(maxBusy)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := try()
		if !IsBusy(err) || time.Now().After(deadline) {
			return err
		}
		if !timing.Wait(ctx, pause/2+rand.N(pause)) {
			return fmt.Errorf("sqlite: wait for a writer of another process: %w: %w", ctx.Err(), err)
		}
	}
}

// IsBusy reports whether err, of a statement of our own, says that another connection holds a lock: SQLITE_BUSY or
// SQLITE_LOCKED. It reads the text, which comes from SQLite itself and so is the same in every driver.
func IsBusy(err error) bool {
	return err != nil && strings.Contains(err.Error(), "is locked")
}

// Require refuses a database that has no file.
func (Engine) Require(ctx context.Context, db *sql.DB) error {
	var file sql.NullString
	err := WhileBusy(ctx, func() error {
		return db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&file)
	})
	if err != nil {
		return fmt.Errorf("ask for the database's file: %w", err)
	}
	if file.String == "" {
		return errors.New("the database has no file (:memory: or temporary), so that every pooled connection " +
			"would see a database of its own: open one in a file")
	}
	return nil
}

// Describe returns the table.
func (Engine) Describe(ctx context.Context, s schema.Session, t schema.Table) (f schema.Found, err error) {
	rows, err := s.QueryContext(ctx, `SELECT name, pk FROM pragma_table_info(?) ORDER BY pk`, t.Name)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		var pk int
		if err := rows.Scan(&name, &pk); err != nil {
			return f, err
		}
		f.Exists = true
		f.Columns = append(f.Columns, name)
		if pk > 0 {
			f.Key = append(f.Key, name)
		}
	}
	return f, rows.Err()
}

// Recorded reads the versions from spillway_schema.
func (Engine) Recorded(ctx context.Context, s schema.Session, _ schema.Found,
	component string) (versions []int, err error) {
	rows, err := s.QueryContext(ctx, `SELECT version FROM spillway_schema WHERE component = ?`, component)
	if err != nil {
		if strings.Contains(err.Error(), "no such table") {
			return nil, nil
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var version int
		if err := rows.Scan(&version); err != nil {
			return nil, err
		}
		versions = append(versions, version)
	}
	return versions, rows.Err()
}

// Alone runs work in one transaction.
func (e Engine) Alone(ctx context.Context, db *sql.DB, _ schema.Table, work func(schema.Session) error) error {
	return e.Write(ctx, db, func(tx *sql.Tx) error { return work(tx) })
}
