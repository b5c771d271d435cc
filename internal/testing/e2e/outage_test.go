package e2e_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit/sqlmarks"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// Decision 13: Health shows the channel's own stores that are unavailable, with or without a breaker.
func TestHealthShowsStores(t *testing.T) {
	b := newBench(t, true)
	ch := testkit.Must(spillway.New(t.Context(), spillway.Config{DB: b.DB}))
	text := testkit.Must(json.Marshal(ch.Health()))
	testkit.Check(t, ch.Breaker() == nil && string(text) == `{"ok":true,"handlers":[]}`, "%v, %s", ch.Breaker(), text)
	move := func(from, to string) {
		t.Helper()
		testkit.Must(b.DB.Exec("ALTER TABLE " + from + " RENAME TO " + to))
	}
	move("spillway_keys", "elsewhere")
	defer b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) { return nil, b.Apply(msg) })()
	b.Publish(message.NewMessage("1", nil), message.NewMessage("2", nil))
	testkit.Eventually(t, "Health shows the store of keys", func() bool {
		h := ch.Health()
		return !h.OK && len(h.Handlers) == 0 && len(h.Stores) == 1 && strings.Contains(h.Stores[0].Name, "the store of keys") && h.Stores[0].Waiting == 2
	})
	move("elsewhere", "spillway_keys")
	testkit.Eventually(t, "the store is back", func() bool { return ch.Health().OK && len(b.Effects()) == 2 })
}

// slow is a subscriber whose broker delivers a message again after the time.
type slow struct {
	message.Subscriber
	redelivers time.Duration
}

func (s slow) RedeliveryTime() time.Duration { return s.redelivers }

// Feature R12: the breaker holds a message for no longer than fits what its subscriber says, through the router's
// decorators. A MaxHold that is longer is cut.
func TestHoldFitsSubscriber(t *testing.T) {
	b := newBench(t, true)
	ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: b.Letters, Breaker: &breaker.Config{MaxHold: time.Hour}}))
	var deliveries atomic.Int64
	attach := func(router *message.Router) {
		ch.Attach(router)
		router.AddSubscriberDecorators(message.MessageTransformSubscriberDecorator(func(*message.Message) { deliveries.Add(1) }))
		router.AddConsumerHandler("shipping", "parcels", slow{shop.StaysOpen(b.Source), 200 * time.Millisecond}, func(*message.Message) error {
			return classify.Unavailable(errors.New("the carrier is unavailable"))
		})
	}
	defer b.Run(attach, func(*message.Message) ([]*message.Message, error) { return nil, nil })()
	testkit.NoError(t, b.Source.Publish("parcels", message.NewMessage("1", nil)))
	testkit.Eventually(t, "it is given back, again and again", func() bool { return deliveries.Load() > 3 })
}

// Promises P1, P3, P7, decision 13: the stores of keys, crashes and stages are cut off under load, each and all at
// once: no message is dead-lettered, lost, doubled or counted for it.
func TestStoresCutOff(t *testing.T) {
	configure := map[string]func(t *testing.T, c *spillway.Config, direct, cut *sql.DB){
		"keys": func(t *testing.T, c *spillway.Config, direct, cut *sql.DB) {
			c.DB, c.Stages.Store = cut, delayStore(t, direct)
		},
		"crash limit": func(t *testing.T, c *spillway.Config, direct, cut *sql.DB) {
			crashes := testkit.Must(sqlmarks.NewStore(t.Context(), cut, "shop"))
			c.DB, c.Stages.Store = direct, delayStore(t, direct)
			c.CrashLimit = &crashlimit.Config{Store: crashes, Max: 1, Heartbeat: 100 * time.Millisecond}
		},
		"stages": func(t *testing.T, c *spillway.Config, direct, cut *sql.DB) {
			c.DB, c.Stages.Store = direct, delayStore(t, cut)
		},
		"all": func(t *testing.T, c *spillway.Config, _, cut *sql.DB) {
			c.DB, c.Stages.Store, c.CrashLimit = cut, delayStore(t, cut), &crashlimit.Config{Max: 1}
		},
	}
	for name, configure := range configure {
		t.Run(databases.Postgres.Name+", "+name, func(t *testing.T) {
			t.Parallel()
			storesCutOff(t, databases.Postgres, configure)
		})
	}
	t.Run(databases.MariaDB.Name, func(t *testing.T) {
		t.Parallel()
		storesCutOff(t, databases.MariaDB, configure["all"])
	})
}

func storesCutOff(t *testing.T, d databases.Database, configure func(*testing.T, *spillway.Config, *sql.DB, *sql.DB)) {
	address := d.Create(t)
	direct := d.Open(t, address)
	testkit.Must(direct.Exec(`CREATE TABLE effects (id VARCHAR(36) NOT NULL)`))
	cut, proxy := d.Behind(t, address)
	live := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	t.Cleanup(func() { _ = live.Close() })
	dead := &shop.Outputs{}
	config := spillway.Config{Service: "shop", Publisher: dead, Stages: &stages.Config{
		Stages: stages.Delays(100 * time.Millisecond), Publisher: live,
		Subscriber: func(string, string) (message.Subscriber, error) { return shop.StaysOpen(live), nil },
	}}
	configure(t, &config, direct, cut)
	dlc := testkit.Must(spillway.New(t.Context(), config))
	var mu sync.Mutex
	failed := map[string]bool{}
	handle := func(msg *message.Message) error {
		mu.Lock()
		first := !failed[msg.UUID] && strings.HasSuffix(msg.UUID, "-down")
		failed[msg.UUID] = true
		mu.Unlock()
		if first {
			return classify.Transient(errors.New("503"))
		}
		n := msg.Metadata[poison.KeyAttempts]
		testkit.Check(t, n <= "1", "%s: %s attempts are counted", msg.UUID, n)
		_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO effects VALUES ('` + msg.UUID + `')`)
		return err
	}
	stop := testkit.RunRouter(t, nil, func(router *message.Router) {
		dlc.Attach(router)
		testkit.Must(dlc.Stages().AddConsumerHandler(router, "billing", "orders", shop.StaysOpen(live), handle))
	})
	defer stop()
	var want []string
	publish := func(phase string) {
		for i := range 20 {
			id := fmt.Sprintf("%s-%d", phase, i)
			if i%2 == 0 {
				id += "-down"
			}
			want = append(want, id)
			testkit.NoError(t, live.Publish("orders", message.NewMessage(id, nil)))
		}
	}
	applied := func() map[string]int {
		counts := map[string]int{}
		for id := range strings.SplitSeq(effects(t, direct), ",") {
			counts[id]++
		}
		return counts
	}
	publish("before")
	proxy.Cut()
	publish("during")
	time.Sleep(4 * time.Second) // longer than retries take
	proxy.Heal()
	publish("after")
	testkit.Eventually(t, "all take effect", func() bool { return len(applied())+len(dead.IDs()) >= len(want) }, func() string {
		return fmt.Sprintf("%d of %d", len(applied()), len(want))
	})
	counts := applied()
	for _, id := range want {
		testkit.Check(t, counts[id] == 1, "%s took effect %d times", id, counts[id])
	}
	ids := dead.IDs()
	testkit.Check(t, len(ids) == 0, "dead-lettered: %v", ids)
}
