package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/wire"
)

// modelRunsVariable says how many random interleavings each server is put through, and five times as many SQLite.
const modelRunsVariable = "SPILLWAY_IDEMPOTENCY_RUNS"

// Features I1, I2, I3, I4, I6, I8, I9, promise P7: random interleavings of claims, commits, crashes, lost answers,
// retries, versions, leases, expiry, purges and redrives leave what a small model says. rapid prints how to repeat a
// failure.
func TestModel(t *testing.T) {
	runs := number(t, modelRunsVariable, 5)
	for _, d := range columns { // one after another: the number of runs is rapid's, and one for all
		row{"P7-model", "random interleavings of everything leave what a small model says", nil}.alone(t, d, func(c *cell) {
			n := runs
			if c.says == "sqlite" {
				n *= 5
			}
			setFlag(c, "rapid.checks", fmt.Sprint(n))
			setFlag(c, "rapid.steps", "40")
			setFlag(c, "rapid.nofailfile", "true")
			setFlag(c, "rapid.shrinktime", "0s") // it panics where a shorter run ends differently each time
			m := newModel(c)
			rapid.Check(c, m.run)
			c.Logf("%v", m.done)
		})
	}
}

func setFlag(c *cell, name, value string) {
	c.Helper()
	f := flag.Lookup(name)
	testkit.Require(c, f != nil, "there is no flag %q", name)
	before := f.Value.String()
	testkit.NoError(c, f.Value.Set(value))
	c.Cleanup(func() { _ = f.Value.Set(before) })
}

// model runs one sequence of actions after another on a database.
type model struct {
	c       *cell
	store   idempotency.Store
	cutNext atomic.Int32 // 1: before the next COMMIT, 2: after it
	runs    int
	done    map[string]int // how often each action was possible
	keys    []*modelKey
	claims  []idempotency.Claim
}

func newModel(c *cell) *model {
	db, w := wire.Open(c, c.driver, c.address)
	m := &model{c: c, store: c.store(db), done: map[string]int{}}
	c.store(c.db)
	cutAt := func(when int32) func(*wire.Conn, string) error {
		return func(conn *wire.Conn, statement string) error {
			if when == 1 && statement == cutNow || wire.IsCommit(statement) && m.cutNext.CompareAndSwap(when, 0) {
				return conn.Cut()
			}
			return nil
		}
	}
	w.Set(cutAt(1), cutAt(2))
	return m
}

// cutNow is the statement at which a connection is lost.
const cutNow = `SELECT 'cut'`

func (m *model) run(t *rapid.T) {
	m.runs++
	m.keys, m.claims = nil, nil
	for i := range 3 {
		m.keys = append(m.keys, &modelKey{
			model: m, key: idempotency.Key{Consumer: "shop/billing", ID: fmt.Sprintf("%d-%d", m.runs, i)}, versioned: i > 0,
		})
	}
	defer func() {
		m.cutNext.Store(0)
		for _, claim := range m.claims { // those of a run that failed in the middle too
			_ = claim.Release()
		}
		m.c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
	}()
	actions := map[string]func(*rapid.T){"purge": m.purge, "": m.check}
	for name, action := range keyActions {
		actions[name] = func(t *rapid.T) {
			var possible []*modelKey
			for _, k := range m.keys {
				if action.possible(k) {
					possible = append(possible, k)
				}
			}
			if len(possible) == 0 {
				t.Skip() // before anything is drawn, so that another action is
			}
			action.do(rapid.SampledFrom(possible).Draw(t, "key"), t)
			m.done[name]++
		}
	}
	t.Repeat(actions)
}

// busy reports whether an action would wait for an open claim.
func (m *model) busy(k *modelKey) bool {
	for _, other := range m.keys {
		// SQLite has one lock. In MariaDB a claim may lock the gap beside its key, after a rollback or a purge, and
		// then new keys wait that belong there. On PostgreSQL claims of different keys interleave.
		if other.claim != nil && (other == k || m.c.says != "postgres") {
			return true
		}
	}
	return false
}

// purge deletes what is old, but for keys that are leased or claimed.
func (m *model) purge(t *rapid.T) {
	if m.c.says != "postgres" && m.busy(nil) {
		t.Skip()
	}
	want, before := 0, time.Now().Add(-time.Hour)
	all := rapid.Bool().Draw(t, "new ones too")
	if all {
		before = time.Now().Add(time.Hour)
	}
	for _, k := range m.keys {
		if (k.old || all && (k.applied || k.leased)) && k.claim == nil && (!k.leased || k.over) {
			want++
			k.forget()
		}
	}
	for purged, ended := 0, time.Now().Add(deadline); ; { // a server may hold the locks of a lost connection for a moment
		n, err := m.store.Purge(m.context(t), before, 10)
		if purged += n; err != nil || purged > want || time.Now().After(ended) {
			t.Fatalf("purged %d, %v; want %d", purged, err, want)
		}
		if purged == want {
			return
		}
	}
}

// check compares what is committed with the model.
func (m *model) check(t *rapid.T) {
	for _, k := range m.keys {
		var outputs []byte
		var version, expires sql.NullInt64
		err := m.c.db.QueryRow(fmt.Sprintf(`SELECT outputs, version, expires_at FROM spillway_keys WHERE consumer = 'shop/billing' AND id = '%s'`, k.key.ID)).
			Scan(&outputs, &version, &expires)
		if errors.Is(err, sql.ErrNoRows) != !(k.applied || k.leased) || err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatalf("%s: %v, and the model has %s", k.key.ID, err, k)
		}
		if string(outputs) != k.outputs || expires.Valid != k.leased || version.Valid != (k.applied && k.versioned) || version.Int64 != k.version {
			t.Fatalf("%s has outputs %q, version %v, expires %v, and the model has %s", k.key.ID, outputs, version, expires, k)
		}
		if n := count(m.c, m.c.db, `effects WHERE id = '`+tag(k.key.ID)+`'`); n != k.effects {
			t.Fatalf("%s has %d effects, and the model has %d", k.key.ID, n, k.effects)
		}
	}
}

func (m *model) context(t *rapid.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// alone runs a case on one database, and records how it ended.
func (r row) alone(t *testing.T, d database, run func(*cell)) {
	t.Helper()
	before := columns
	defer func() { columns = before }()
	columns = []database{d}
	r.on(t, func(t *testing.T, d database) { run(newCell(t, d)) })
}
