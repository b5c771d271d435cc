package breaker_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// instance is one process of a service: a router with the handler billing behind a breaker.
type instance struct {
	t       *testing.T
	breaker *breaker.Breaker
	log     testkit.Log
	source  *gochannel.GoChannel
	stop    func()
	calls   atomic.Int64
	handled atomic.Int64
}

func openStore(t *testing.T, db *sql.DB) *breaker.Store {
	t.Helper()
	return openStoreEvery(t, db, 200*time.Millisecond)
}

func openStoreEvery(t *testing.T, db *sql.DB, every time.Duration) *breaker.Store {
	return testkit.Must(breaker.NewStoreEvery(t.Context(), db, "shop", every))
}

func newInstance(t *testing.T, db *sql.DB, config breaker.Config, away *atomic.Bool) *instance {
	t.Helper()
	i := &instance{t: t, source: gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)}
	if config.Logger = &i.log; config.Store == nil {
		config.Store = openStore(t, db)
	}
	i.breaker = newBreaker(t, config)
	i.stop = testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
		router.AddPlugin(i.breaker.Plugin)
		router.AddMiddleware(i.breaker.Middleware)
		router.AddConsumerHandler("billing", "orders", i.source, func(*message.Message) error {
			if i.calls.Add(1); away.Load() {
				return errAway
			}
			i.handled.Add(1)
			return nil
		})
	})
	return i
}

func (i *instance) send(n int) {
	i.t.Helper()
	for range n {
		testkit.NoError(i.t, i.source.Publish("orders", message.NewMessage(watermill.NewUUID(), nil)))
	}
}

// until waits until the handler's state has a reason. Reason "" means that nothing is held.
func (i *instance) until(reason string) {
	i.t.Helper()
	testkit.Eventually(i.t, fmt.Sprintf("reason %q", reason), func() bool {
		all := i.breaker.Health()
		if reason == "" {
			return len(all) == 0
		}
		return len(all) > 0 && all[0].Reason == reason
	}, func() string { return fmt.Sprintf("%+v", i.breaker.Health()) })
}

// Feature R12: an outage that one instance finds opens the breakers of the others. A message that succeeds in one
// closes them all.
func TestSharedOutage(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var away, never atomic.Bool
		db := d.Open(t, address)
		finds := newInstance(t, db, breaker.Config{Probe: time.Hour, MaxProbe: time.Hour}, &away) // it closes by the other's success alone
		hears := newInstance(t, d.Open(t, address), breaker.Config{Probe: time.Hour, MaxProbe: time.Hour}, &never)
		probes := newInstance(t, d.Open(t, address), breaker.Config{}, &away)
		away.Store(true)
		finds.send(3)
		finds.until(breaker.ReasonAway)
		hears.until(breaker.ReasonShared)
		probes.until(breaker.ReasonShared)
		testkit.Equal(t, "calls in an instance that only heard of the outage", hears.calls.Load(), 0)
		away.Store(false)
		probes.send(1)
		testkit.Eventually(t, "the held messages are handled", func() bool { return finds.handled.Load() == 3 && probes.handled.Load() == 1 })
		for _, i := range []*instance{finds, hears, probes} {
			i.until("")
			i.stop()
		}
		left, err := openStore(t, db).List(t.Context())
		testkit.Check(t, err == nil && len(left) == 0, "%+v, %v", left, err)
	})
}

// Feature R12: a sign of life that is on its way to the store does not undo the end of the outage that another instance
// wrote.
func TestSharedProofStands(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		store := openStoreEvery(t, db, time.Millisecond) // a sign of life is always on its way
		for range 12 {
			var away atomic.Bool
			away.Store(true)
			finds := newInstance(t, db, breaker.Config{Store: store, Probe: time.Hour, MaxProbe: time.Hour}, &away)
			finds.send(3)
			finds.until(breaker.ReasonAway)
			testkit.Eventually(t, "the others can know", func() bool {
				list, err := store.List(t.Context())
				return err == nil && len(list) == 1
			})
			away.Store(false)
			if _, err := db.Exec(`DELETE FROM spillway_outages WHERE instance <> ''`); err != nil { // what a proof does
				t.Fatal(err)
			}
			finds.until("")
			finds.stop()
		}
	})
}

// Feature R12: an instance that could not ask the store for a while knows afterwards whether a message of another one
// succeeded meanwhile.
func TestSharedProofStandsWhileStoreIsAway(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var away atomic.Bool
		away.Store(true)
		db := d.Open(t, address)
		store := openStoreEvery(t, db, 20*time.Millisecond)
		finds := newInstance(t, db, breaker.Config{Store: store, Probe: time.Hour, MaxProbe: time.Hour}, &away)
		exec := func(statement string) {
			t.Helper()
			testkit.Eventually(t, statement, func() bool { _, err := db.Exec(statement); return err == nil })
		}
		known := func() {
			t.Helper()
			testkit.Eventually(t, "the others know", func() bool { list, err := store.List(t.Context()); return err == nil && len(list) == 1 })
		}
		meanwhile := func(statement string) {
			t.Helper()
			before := len(finds.log.Errors())
			exec(`ALTER TABLE spillway_outages RENAME TO elsewhere`)
			testkit.Eventually(t, "the store is away", func() bool { return len(finds.log.Errors()) > before })
			exec(statement)
			exec(`ALTER TABLE elsewhere RENAME TO spillway_outages`)
		}
		finds.send(3)
		finds.until(breaker.ReasonAway)
		known()
		calls := finds.calls.Load()
		away.Store(false)
		meanwhile(`UPDATE elsewhere SET expires_at = 1`) // it could show no sign of life, which proves nothing
		known()
		if n := finds.calls.Load() - calls; n != 0 || len(finds.breaker.Health()) == 0 {
			t.Errorf("%d calls in the outage, %+v", n, finds.breaker.Health())
		}
		meanwhile(`DELETE FROM elsewhere WHERE instance <> ''`) // what a proof does
		finds.until("")
	})
}

// Feature R12: an outage of an instance that died expires.
func TestSharedOutageExpires(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var never atomic.Bool
		db := d.Open(t, address)
		i := newInstance(t, db, breaker.Config{Probe: time.Hour, MaxProbe: time.Hour}, &never)
		exec := func(statement string) {
			t.Helper()
			testkit.Must(db.Exec(statement))
		}
		exec(`INSERT INTO spillway_outages (service, handler, scope, instance, state, reason, cause, actor, since, expires_at)
VALUES ('shop', 'billing', '', 'dead', 'open', 'away', 'the bank is away', '', 1, 9000000000000)`)
		i.until(breaker.ReasonShared)
		cause := i.breaker.Health()[0].Cause
		testkit.Check(t, strings.Contains(cause, "another instance, dead: the bank is away"), "%v", cause)
		exec(`UPDATE spillway_outages SET expires_at = 1`)
		i.until("")
	})
}

// Feature R12: a freeze in the store holds messages in all instances, also in those that start later, until it is
// released by hand.
func TestSharedFreeze(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var never atomic.Bool
		db := d.Open(t, address)
		store := openStore(t, db)
		first := newInstance(t, db, breaker.Config{}, &never)
		for _, handler := range []string{"billing", ""} {
			testkit.NoError(t, store.Freeze(t.Context(), handler, "bank upgrade", "ann"))
			first.until("bank upgrade")
			later := newInstance(t, d.Open(t, address), breaker.Config{}, &never)
			if all := later.breaker.Health(); len(all) != 1 || all[0].State != breaker.Frozen || all[0].Actor != "ann" {
				t.Errorf("at start: %+v", all)
			}
			later.send(2)
			testkit.Eventually(t, "messages are held", func() bool { return later.breaker.Health()[0].Waiting == 2 })
			later.breaker.Close("") // another freeze
			if list, err := store.List(t.Context()); err != nil || len(list) != 1 || list[0].State != breaker.Frozen || list[0].Actor != "ann" || list[0].Since.IsZero() {
				t.Errorf("%+v, %v", list, err)
			}
			testkit.Equal(t, "calls while frozen", later.calls.Load(), 0)
			released, err := store.Release(t.Context(), handler, "the bank is up", "bob")
			testkit.Check(t, err == nil && released, "%t, %v", released, err)
			testkit.Eventually(t, "messages are handled", func() bool { return later.handled.Load() == 2 })
			first.until("")
			testkit.Eventually(t, "the log says who released the handler, and why", func() bool { // behind the messages
				return later.log.Has("messages pass again", "actor", "bob") && later.log.Has("messages pass again", "reason", "the bank is up")
			})
			later.stop()
		}
		released, err := store.Release(t.Context(), "billing", "again", "bob")
		testkit.Check(t, err == nil && !released, "released twice: %t, %v", released, err)
		testkit.Says(t, testkit.Err(store.Release(t.Context(), "billing", "", "")), "the actor is empty")
		for _, err := range []error{
			store.Freeze(t.Context(), "billing", "", "ann"), store.Freeze(t.Context(), "billing", "why", ""),
			store.Freeze(t.Context(), strings.Repeat("x", 300), "why", "ann"), store.Freeze(t.Context(), "a\x00b", "why", "ann"),
		} {
			testkit.Says(t, err, "breaker: Freeze: the ")
		}
	})
}

// Feature R12: while the store is away each instance decides for itself. One Error line says so.
func TestStoreAway(t *testing.T) {
	db := databases.SQLite.New(t)
	var away atomic.Bool
	i := newInstance(t, db, breaker.Config{}, &away)
	testkit.Must(db.Exec(`DROP TABLE spillway_outages`))
	away.Store(true)
	i.send(3)
	i.until(breaker.ReasonAway)
	testkit.Eventually(t, "the log says so", func() bool { return len(i.log.Lines(watermill.ErrorLogLevel, "store of outages does not answer")) == 1 })
	away.Store(false)
	testkit.Eventually(t, "all are handled", func() bool { return i.handled.Load() == 3 })
	i.until("")
	i.stop()
	testkit.Equal(t, "lines", len(i.log.Lines(watermill.ErrorLogLevel, "store of outages does not answer")), 1)
}

// A store that nothing could be shared through is an error that says what to do.
func TestNewStoreRefuses(t *testing.T) {
	db := databases.SQLite.New(t)
	testkit.Says(t, testkit.Err(breaker.NewStore(t.Context(), db, "a b")), "the Service")
	testkit.Check(t, testkit.Err(breaker.NewStore(context.Background(), nil, "")) != nil, "no database")
	testkit.Says(t, newBreaker(t, breaker.Config{}).Plugin(nil), "the router is nil")
}
