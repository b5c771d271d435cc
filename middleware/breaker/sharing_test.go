package breaker_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/middleware/breaker/sqlshare"
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

// quickStore is a store that instances ask every so often.
type quickStore struct {
	*sqlshare.Store
	every time.Duration
}

func openStore(t *testing.T, db *sql.DB, every time.Duration) quickStore {
	return quickStore{testkit.Must(sqlshare.NewStore(t.Context(), db, "shop")), every}
}

func newInstance(t *testing.T, store quickStore, config breaker.Config, down *service) *instance {
	t.Helper()
	i := &instance{t: t, source: gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)}
	config.Logger, config.Store = &i.log, store
	i.breaker = newBreaker(t, config)
	i.breaker.ShareEvery(store.every)
	i.stop = testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
		router.AddPlugin(i.breaker.Plugin)
		router.AddMiddleware(i.breaker.Middleware)
		router.AddConsumerHandler("billing", "orders", i.source, func(msg *message.Message) error {
			i.calls.Add(1)
			_, err := down.handle(msg)
			if err == nil {
				i.handled.Add(1)
			}
			return err
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
		return len(all) == 0 && reason == "" || len(all) > 0 && all[0].Reason == reason
	}, func() string { return fmt.Sprintf("%+v", i.breaker.Health()) })
}

// patient is a breaker that tries no message by itself: what ends its outage is another instance's news.
var patient = breaker.Config{Probe: time.Hour, MaxProbe: time.Hour}

const dead = `INSERT INTO spillway_outages
(service, handler, scope, instance, state, reason, cause, actor, since, expires_at)
VALUES ('shop', 'billing', '', 'dead', 'open', 'share', 'boom', '', 1, 9000000000000)`

// Feature R12: an outage that one instance finds opens the breakers of the others. A message that succeeds in one
// closes them all. An outage of an instance that died expires.
func TestSharedOutage(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var down, fine service
		store := func() quickStore { return openStore(t, d.Open(t, address), 200*time.Millisecond) }
		finds, hears := newInstance(t, store(), patient, &down), newInstance(t, store(), patient, &fine)
		probes := newInstance(t, store(), breaker.Config{}, &down)
		down.fail(errUnavailable)
		finds.send(3)
		finds.until(breaker.ReasonUnavailable)
		hears.until(breaker.ReasonShared)
		probes.until(breaker.ReasonShared)
		testkit.Equal(t, "calls in an instance that only heard of the outage", hears.calls.Load(), 0)
		down.fail(nil)
		probes.send(1)
		testkit.Eventually(t, "the held messages are handled", func() bool {
			return finds.handled.Load() == 3 && probes.handled.Load() == 1
		})
		for _, i := range []*instance{finds, hears, probes} {
			i.until("")
		}
		finds.stop()
		probes.stop()
		left, err := store().List(t.Context())
		testkit.Check(t, err == nil && len(left) == 0, "%+v, %v", left, err)

		db := d.Open(t, address)
		testkit.Must(db.Exec(dead))
		hears.until(breaker.ReasonShared)
		cause := hears.breaker.Health()[0].Cause
		testkit.Check(t, strings.Contains(cause, "another instance, dead: boom"), "%v", cause)
		testkit.Must(db.Exec(`UPDATE spillway_outages SET expires_at = 1`))
		hears.until("")
	})
}

// Feature R12: neither a sign of life that is on its way to the store undoes the end of the outage that another
// instance wrote, nor does an instance that could not ask the store for a while miss it. Without a sign of life it goes
// on with its outage, which that proves nothing against.
func TestSharedProofStands(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var down service
		db := d.Open(t, address)
		exec := func(statement string) {
			t.Helper()
			testkit.Eventually(t, statement, func() bool { _, err := db.Exec(statement); return err == nil })
		}
		finds := func(service string, every time.Duration) (i *instance, known func()) {
			down.fail(errUnavailable)
			store := quickStore{testkit.Must(sqlshare.NewStore(t.Context(), db, service)), every}
			i = newInstance(t, store, patient, &down)
			i.send(3)
			i.until(breaker.ReasonUnavailable)
			known = func() {
				t.Helper()
				testkit.Eventually(t, "the others can know", func() bool {
					list, err := store.List(t.Context())
					return err == nil && len(list) == 1
				})
			}
			known()
			return i, known
		}
		var all []*instance
		for n := range 8 { // a sign of life of each is always on its way
			one, _ := finds(fmt.Sprint("shop-", n), time.Millisecond)
			all = append(all, one)
		}
		down.fail(nil)
		exec(`DELETE FROM spillway_outages WHERE instance <> ''`) // what a proof does
		for _, one := range all {
			one.until("")
			one.stop()
		}
		one, known := finds("shop", 20*time.Millisecond)
		down.fail(nil)
		calls := one.calls.Load()
		meanwhile := func(statement string) {
			t.Helper()
			before := len(one.log.Errors())
			exec(`ALTER TABLE spillway_outages RENAME TO elsewhere`)
			testkit.Eventually(t, "the store is unavailable", func() bool { return len(one.log.Errors()) > before })
			exec(statement)
			exec(`ALTER TABLE elsewhere RENAME TO spillway_outages`)
		}
		meanwhile(`UPDATE elsewhere SET expires_at = 1`) // it could show no sign of life
		known()
		n := one.calls.Load() - calls
		testkit.Check(t, n == 0 && len(one.breaker.Health()) == 1, "%d calls, %+v", n, one.breaker.Health())
		meanwhile(`DELETE FROM elsewhere WHERE instance <> ''`)
		one.until("")
	})
}

// Feature R12: a freeze in the store holds messages in all instances, also in those that start later, until it is
// released by hand.
func TestSharedFreeze(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var fine service
		store := openStore(t, d.Open(t, address), 20*time.Millisecond)
		first := newInstance(t, store, breaker.Config{}, &fine)
		for _, handler := range []string{"billing", ""} {
			testkit.NoError(t, store.Freeze(t.Context(), handler, "bank upgrade", "ann"))
			first.until("bank upgrade")
			own := openStore(t, d.Open(t, address), 20*time.Millisecond)
			later := newInstance(t, own, breaker.Config{}, &fine)
			isFrozen := func(all []circuit.Status) bool {
				return len(all) == 1 && all[0].State == circuit.Frozen && all[0].Actor == "ann" && !all[0].Since.IsZero()
			}
			testkit.Check(t, isFrozen(later.breaker.Health()), "at start: %+v", later.breaker.Health())
			later.send(2)
			testkit.Eventually(t, "messages are held", func() bool { return later.breaker.Health()[0].Waiting == 2 })
			testkit.NoError(t, later.breaker.Close("")) // another freeze
			list, err := store.List(t.Context())
			testkit.Check(t, err == nil && isFrozen(list) && later.calls.Load() == 0, "%d calls, %+v, %v",
				later.calls.Load(), list, err)
			testkit.Returns(t, true)(store.Release(t.Context(), handler, "the bank is up", "bob"))
			testkit.Eventually(t, "messages are handled", func() bool { return later.handled.Load() == 2 })
			first.until("")
			testkit.Eventually(t, "the log says who released the handler, and why", func() bool { // behind the messages
				return later.log.Has("messages pass again", "actor", "bob") &&
					later.log.Has("messages pass again", "reason", "the bank is up")
			})
			later.stop()
		}
		testkit.Returns(t, false)(store.Release(t.Context(), "billing", "again", "bob"))
		testkit.Says(t, testkit.Err(store.Release(t.Context(), "billing", "", "")), "the actor is empty")
		for _, err := range []error{
			store.Freeze(t.Context(), "billing", "", "ann"), store.Freeze(t.Context(), "billing", "why", ""),
			store.Freeze(t.Context(), strings.Repeat("x", 300), "why", "ann"),
			store.Freeze(t.Context(), "a\x00b", "why", "ann"),
		} {
			testkit.Says(t, err, "sqlshare: Freeze: the ")
		}
	})
}

// Feature R12: while the store is unavailable each instance decides for itself. One Error line says so.
func TestStoreUnavailable(t *testing.T) {
	var down service
	db := databases.SQLite.New(t)
	i := newInstance(t, openStore(t, db, 20*time.Millisecond), breaker.Config{}, &down)
	testkit.Must(db.Exec(`DROP TABLE spillway_outages`))
	down.fail(errUnavailable)
	i.send(3)
	i.until(breaker.ReasonUnavailable)
	lines := func() int { return len(i.log.Lines(watermill.ErrorLogLevel, "store of outages does not answer")) }
	testkit.Eventually(t, "the log says so", func() bool { return lines() == 1 })
	down.fail(nil)
	testkit.Eventually(t, "all are handled", func() bool { return i.handled.Load() == 3 })
	i.until("")
	i.stop()
	testkit.Equal(t, "lines", lines(), 1)
}

// A store that nothing could be shared through is an error that says what to do.
func TestNewStoreRefuses(t *testing.T) {
	testkit.Says(t, testkit.Err(sqlshare.NewStore(t.Context(), databases.SQLite.New(t), "a b")), "the Service")
	testkit.Check(t, testkit.Err(sqlshare.NewStore(t.Context(), nil, "")) != nil, "no database")
	testkit.Says(t, newBreaker(t, breaker.Config{}).Plugin(nil), "the router is nil")
}
