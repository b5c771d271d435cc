package crashlimit

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

// haunted is a limit that marks, because another process was lost.
func haunted(t testing.TB, config options) *Limit {
	t.Helper()
	l := newLimit(t, config)
	testkit.NoError(t, config.Store.Register(t.Context(), deliveries.Process{ID: "lost"}))
	lost, err := config.Store.Lose(t.Context(), "lost", 0)
	testkit.Require(t, err == nil && lost, "%v %v", lost, err)
	testkit.NoError(t, l.start())
	testkit.Require(t, l.mode.Load() == marking, "it does not mark")
	return l
}

// Feature D10: a router's process is registered before its first message, and signs off after its last, which may still
// be handled when the router closes. By default the consumer is the handler.
func TestRouter(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		l := haunted(t, options{Config: Config{Store: storeOn(t, db)}})
		testkit.NoError(t, l.end())
		registered := func() int { return len(pairs(db, processes+` WHERE lost_at IS NULL`)) }
		for range 2 { // one router after another
			entered, release := make(chan struct{}), make(chan struct{})
			orders := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 8}, watermill.NopLogger{})
			stop := testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
				r.AddPlugin(l.Plugin)
				r.AddMiddleware(l.Middleware)
				r.AddConsumerHandler("billing", "orders", orders, func(*message.Message) error {
					close(entered)
					<-release
					return nil
				})
			})
			testkit.Equal(t, "not registered before the first message", registered(), 1)
			testkit.NoError(t, orders.Publish("orders", newMessage("a")))
			<-entered
			got := pairs(db, `SELECT consumer, id FROM spillway_deliveries`)
			testkit.Check(t, len(got) == 1 && got["billing"] == "a", "the marks are %v", got)
			closed := make(chan struct{})
			go func() { defer close(closed); stop() }()
			eventually(t, "the limit stops", l.closing.Load)
			testkit.Equal(t, "signed off under a running handler", registered(), 1)
			close(release)
			<-closed
			if n := registered(); n != 0 || len(pairs(db, `SELECT id, consumer FROM spillway_deliveries`)) != 0 {
				t.Errorf("%d processes are left after an orderly end", n)
			}
		}
	})
}

// Feature D10, I1: around a receiver on the same database, SQLite's one write lock included, the mark is written before
// the claim and removed after it; and a message that an outer handler hands on inside of its claim does not wait.
func TestAroundAReceiver(t *testing.T) {
	for _, d := range databases.All {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			db := d.Open(t, d.Create(t))
			db.SetMaxOpenConns(0) // messages inside of transactions need connections too
			keys := testkit.Must(idempotency.NewStore(t.Context(), db, "shop"))
			receiver := testkit.Must(idempotency.NewReceiver(keys, idempotency.ReceiverConfig{Consumer: "billing"}))
			l := haunted(t, options{Config: Config{Store: storeOn(t, db), Heartbeat: 50 * time.Millisecond}})
			inner := chain.Enter(l.step)(succeed)
			h := chain.EnterParts(l, receiver)(func(msg *message.Message) ([]*message.Message, error) {
				next := newMessage("of " + msg.UUID)
				next.SetContext(msg.Context())
				return inner(next)
			})
			const at1, rounds = 40, 3
			for round := range rounds {
				eventually(t, "marks can be written", func() bool { return !l.outage.lasts() })
				var all sync.WaitGroup
				for i := range at1 {
					all.Go(func() {
						testkit.Is(t, testkit.Err(h(newMessage(fmt.Sprint(round, "-", i)))), nil)
					})
				}
				all.Wait()
				if keys := pairs(db, `SELECT id, consumer FROM spillway_keys`); len(keys) != at1*(round+1) {
					t.Errorf("%d were applied in %d rounds", len(keys), round+1)
				}
				marks := pairs(db, `SELECT id, consumer FROM spillway_deliveries`)
				if len(marks) == 0 && !l.outage.lasts() {
					return
				}
				t.Logf("marks are left, or failed, as where a disk stands still: %v", marks)
			}
			t.Errorf("marks were left, or failed, in all of %d rounds", rounds)
		})
	}
}

// Feature D10: without its database, which is cut off or does not answer, messages are handled; when it is back,
// deliveries are marked again and the process is known to live.
func TestDatabaseCutOff(t *testing.T) {
	for _, d := range databases.All[1:] {
		for how, turn := range map[string]func(*faultproxy.Proxy){"cut": (*faultproxy.Proxy).Cut, "silent": (*faultproxy.Proxy).HalfOpen} {
			if d.Name == "mariadb" && how == "silent" { // time-outs are database/sql's, whatever the driver is
				continue
			}
			t.Run(d.Name+", "+how, func(t *testing.T) {
				t.Parallel()
				direct := d.Create(t)
				observer := d.Open(t, direct)
				db, p := d.Behind(t, direct)
				config := options{Config: Config{Store: storeOn(t, db), Heartbeat: 50 * time.Millisecond}}
				if how == "silent" {
					config.within = 2 * time.Second
				}
				l := haunted(t, config)
				marks := func() int { return len(pairs(observer, `SELECT id, consumer FROM spillway_deliveries`)) }
				marked := 0
				h := l.Middleware(func(*message.Message) ([]*message.Message, error) { marked = marks(); return nil, nil })
				handle := func(id string) {
					t.Helper()
					testkit.Is(t, testkit.Err(h(newMessage(id))), nil)
				}
				eventually(t, "a mark is written before", func() bool { handle("before"); return marked == 1 })
				_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) { turn(p); return nil, nil })(newMessage("during"))
				for range 100 {
					handle("without")
				}
				if marked != 1 { // that of the message which was in flight
					t.Errorf("%d marks without a database", marked)
				}
				p.Heal()
				eventually(t, "marks are written and owed ones removed", func() bool { handle("after"); return marked == 1 && marks() == 0 })
			})
		}
	}
}
