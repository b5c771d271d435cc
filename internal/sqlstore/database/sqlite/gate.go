// Package sqlite knows what is particular to SQLite: its SQL, its catalog, the gate that keeps the writers of one
// process in a row, and patience with the writers of other processes. Any database/sql driver will do.
package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"sync"
	"weak"
)

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
