package idempotency_test

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// modelKey is what the model knows of a key: absent, applied with a version, and leased beside that. Its open claim is
// not in the database yet.
type modelKey struct {
	*model
	key       idempotency.Key
	versioned bool

	applied bool
	version int64
	outputs string
	effects int
	old     bool // applied or leased long ago

	leased, over bool // over: another one may take it
	fence        int64
	holder       idempotency.Lease
	wanted       int64               // the version that the holder is at work on
	lost         []idempotency.Lease // of those before

	claim    idempotency.Claim // nil where there is none
	claiming int64             // its version
}

func (k *modelKey) String() string {
	if k == nil {
		return "none"
	}
	return fmt.Sprintf("applied %v, version %d, outputs %q, leased %v, over %v, fence %d", k.applied, k.version, k.outputs, k.leased, k.over, k.fence)
}

func (k *modelKey) entry(version int64) idempotency.Entry {
	e := idempotency.Entry{Key: k.key, Versioned: k.versioned}
	if k.versioned {
		e.Version = version
	}
	return e
}

func (k *modelKey) draw(t *rapid.T) int64 {
	if !k.versioned {
		return 0
	}
	return rapid.Int64Range(-2, 12).Draw(t, "version")
}

// outcome is what a claim or a lease of a version is to find.
func (k *modelKey) outcome(version int64) string {
	switch {
	case k.applied && (!k.versioned || k.version >= version):
		return "recorded"
	case k.leased && !k.over:
		return "held"
	}
	return "won"
}

func (k *modelKey) found(t *rapid.T, version int64, record *idempotency.Record, err error) {
	got := "won"
	switch {
	case errors.Is(err, idempotency.ErrHeld):
		got = "held"
	case err != nil:
		t.Fatalf("%s: %v", k.key.ID, err)
	case record != nil:
		got = "recorded"
		if string(record.Outputs) != k.outputs || record.Version != k.version || record.Versioned != k.versioned {
			t.Fatalf("%s: recorded %+v, and the model has %s", k.key.ID, record, k)
		}
	}
	if want := k.outcome(version); got != want {
		t.Fatalf("version %d of %s: %s, want %s: the model has %s", version, k.key.ID, got, want, k)
	}
}

// keyActions are what can be done with a key, and when.
var keyActions = map[string]struct {
	possible func(*modelKey) bool
	do       func(*modelKey, *rapid.T)
}{
	"claim":    {(*modelKey).free, (*modelKey).begin},
	"commit":   {(*modelKey).open, (*modelKey).commit},
	"release":  {(*modelKey).open, (*modelKey).release},
	"crash":    {(*modelKey).open, (*modelKey).crash},
	"mark":     {(*modelKey).free, (*modelKey).mark},
	"age":      {func(k *modelKey) bool { return k.free() && k.applied && !k.leased }, (*modelKey).age},
	"lease":    {(*modelKey).free, (*modelKey).lease},
	"renew":    {(*modelKey).owned, (*modelKey).renew},
	"complete": {(*modelKey).owned, (*modelKey).complete},
	"give up":  {(*modelKey).owned, (*modelKey).giveUp},
	"expire":   {(*modelKey).owned, (*modelKey).expire},
	"late":     {func(k *modelKey) bool { return k.free() && len(k.lost) > 0 }, (*modelKey).late},
}

func (k *modelKey) open() bool  { return k.claim != nil }
func (k *modelKey) free() bool  { return !k.busy(k) }
func (k *modelKey) owned() bool { return k.holder != nil && k.free() }

type claimed struct {
	claim idempotency.Claim
	err   error
}

// begin claims the key: a first delivery, a redelivery, a redrive.
func (k *modelKey) begin(t *rapid.T) {
	version := k.draw(t)
	claim, err := k.store.Claim(k.context(t), k.entry(version))
	k.began(t, version, claimed{claim, err})
}

func (k *modelKey) began(t *rapid.T, version int64, got claimed) {
	var record *idempotency.Record
	if got.err == nil {
		k.claims = append(k.claims, got.claim)
		record = got.claim.Recorded()
	}
	k.found(t, version, record, got.err)
	if got.err != nil {
		return
	}
	if record != nil {
		testkit.Require(t, got.claim.Commit([]byte("again")) != nil, "a key that was applied is committed")
		testkit.NoError(t, got.claim.Release())
		return
	}
	k.claim, k.claiming = got.claim, version
	testkit.Must(k.claim.Tx().Exec(inEffects(k.key.ID)))
}

// end ends the open claim, perhaps while a duplicate waits for it.
func (k *modelKey) end(t *rapid.T, end func(idempotency.Claim)) {
	ending := k.claim
	k.claim = nil
	if !rapid.Bool().Draw(t, "somebody waits") {
		end(ending)
		return
	}
	version := k.draw(t)
	waits := make(chan claimed, 1)
	ctx, entry := k.context(t), k.entry(version)
	go func() {
		claim, err := k.store.Claim(ctx, entry)
		waits <- claimed{claim, err}
	}()
	end(ending)
	k.began(t, version, <-waits)
}

// commit commits, with the connection or not.
func (k *modelKey) commit(t *rapid.T) {
	k.end(t, func(claim idempotency.Claim) {
		outputs := rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "outputs")
		cut := rapid.SampledFrom([]int32{0, 0, 0, 1, 2}).Draw(t, "cut")
		k.cutNext.Store(cut)
		err := claim.Commit([]byte(outputs))
		testkit.Require(t, (err != nil) == (cut > 0), "commit: %v, cut %d", err, cut)
		if cut != 1 {
			k.apply(k.claiming, outputs)
			k.effects++
			k.taken()
		}
		if err := claim.Release(); err != nil {
			t.Fatal("release after the end: ", err)
		}
	})
}

func (k *modelKey) release(t *rapid.T) {
	k.end(t, func(claim idempotency.Claim) {
		testkit.NoError(t, claim.Release())
		testkit.Require(t, claim.Commit(nil) != nil, "commit after the end")
	})
}

// crash loses the connection under the handler.
func (k *modelKey) crash(t *rapid.T) {
	k.end(t, func(claim idempotency.Claim) {
		testkit.Require(t, testkit.Err(claim.Tx().Exec(cutNow)) != nil, "the connection was not cut")
		testkit.Require(t, !rapid.Bool().Draw(t, "goes on") || claim.Commit([]byte("x")) != nil,
			"commit without a connection")
		if err := claim.Release(); errors.Is(err, sql.ErrTxDone) { // that the handler had committed
			t.Fatal(err)
		}
	})
}

func (k *modelKey) apply(version int64, outputs string) {
	k.applied, k.version, k.outputs, k.old = true, version, outputs, false
}

// taken ends the lease that there was.
func (k *modelKey) taken() {
	if k.holder != nil {
		k.lost = append(k.lost, k.holder)
	}
	k.leased, k.over, k.holder = false, false, nil
}

// forget makes the key absent.
func (k *modelKey) forget() {
	k.taken()
	k.applied, k.version, k.outputs, k.old, k.fence = false, 0, "", false, 0
	k.lost = nil // SQLite's fences begin anew by the millisecond, so a lease within the same one may have the same
}

// mark forgets the outputs of a version, where it is the one that is applied.
func (k *modelKey) mark(t *rapid.T) {
	version := k.draw(t)
	for range 200 {
		testkit.NoError(t, k.store.MarkPublished(k.context(t), k.entry(version)))
		if k.leased || k.versioned && version != k.version || k.recordedOutputs(t) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond) // PostgreSQL passes over a row that a cut connection has not let go of yet
	}
	if !k.leased && (!k.versioned || version == k.version) { // an applied version stays as it is while another one is leased
		k.outputs = ""
	}
}

func (k *modelKey) recordedOutputs(t *rapid.T) (n int) {
	err := k.c.db.QueryRow(`SELECT count(outputs) FROM spillway_keys WHERE id = '` + k.key.ID + `'`).Scan(&n)
	testkit.Require(t, err == nil, "%v", err)
	return n
}

// age lets a month pass since the key was applied.
func (k *modelKey) age(t *rapid.T) {
	k.move(t, 30*24*time.Hour)
}

func (k *modelKey) move(t *rapid.T, by time.Duration) {
	ms := by.Milliseconds()
	if _, err := k.c.db.Exec(fmt.Sprintf(`UPDATE spillway_keys SET applied_at = applied_at - %d, expires_at = expires_at - %d WHERE consumer = 'shop/billing' AND id = '%s'`,
		ms, ms, k.key.ID)); err != nil {
		t.Fatal(err)
	}
	k.old = true
}
