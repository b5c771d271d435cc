package campaigns_test

import (
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) {
	child.Main(order.work)
	goleak.VerifyTestMain(m)
}

// order is what a worker in a process of its own does.
type order struct {
	Driver, Address string
	Kill            string // the step at which it ends itself without a word
	After           int    // that many letters
	Concurrency     int    // of the campaign
	Unmarked        int    // of the worker
}

// The steps.
const (
	killStart     = "in the selection"
	killTaken     = "before a publish"
	killPublished = "after a publish, before the mark"
	killMarked    = "after a mark, before the next publish"
	killDecided   = "after a policy has decided"
)

func (o order) work() error {
	db := testkit.Must(sql.Open(o.Driver, o.Address))
	ctx, stop := child.Context()
	defer stop()
	store := testkit.Must(letters.NewStore(ctx, db, letters.Config{Service: "shop"}))
	with := config
	if o.Kill == killDecided {
		with = standing()
	}
	all := testkit.Must(campaigns.New(ctx, store, with))
	die := func(step string, calls int) {
		if step == o.Kill && calls >= o.After {
			child.Kill()
		}
	}
	if o.Kill == killStart || o.Kill == killDecided {
		go func() {
			for ; ; time.Sleep(time.Millisecond) {
				if open, err := all.List(ctx, campaigns.List{}); err == nil && len(open) > 0 && (open[0].Selected > 0 || o.Kill == killDecided) {
					die(o.Kill, o.After)
				}
			}
		}()
		for ; o.Kill == killDecided && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if err := all.Look(ctx); err != nil {
				return err
			}
		}
		r := request
		r.Concurrency = o.Concurrency
		_, err := all.Start(ctx, r)
		die(killStart, o.After)
		return err
	}
	var called atomic.Int64
	insert := map[string]string{"pgx": `INSERT INTO published (id) VALUES ($1)`}[o.Driver]
	if insert == "" {
		insert = `INSERT INTO published (id) VALUES (?)`
	}
	worker := testkit.Must(campaigns.NewWorker(all, fixture.PublisherFunc(func(_ string, messages ...*message.Message) error {
		calls := int(called.Add(1))
		if calls > 1 {
			die(killMarked, calls)
		}
		die(killTaken, calls)
		for {
			if _, err := db.Exec(insert, messages[0].UUID); err == nil {
				break
			}
		}
		die(killPublished, calls)
		return nil
	}), campaigns.WorkerConfig{Poll: 10 * time.Millisecond, Lease: 500 * time.Millisecond}.Tuned(20, o.Unmarked, 0)))
	return worker.Run(ctx)
}

// Feature V7: wherever a process is killed, no letter is lost, and few come twice: one, or those in flight.
func TestKilled(t *testing.T) {
	t.Run("one at a time", func(t *testing.T) {
		t.Parallel()
		killed(t, 200, 1, 1, []order{{Kill: killStart}, {Kill: killTaken, After: 30}, {Kill: killPublished, After: 25},
			{Kill: killMarked, After: 35}, {Kill: killPublished, After: 1}})
	})
	t.Run("six at a time", func(t *testing.T) {
		t.Parallel()
		killed(t, 200, 6, 16, []order{{Kill: killStart}, {Kill: killPublished, After: 60, Unmarked: 10},
			{Kill: killMarked, After: 35, Unmarked: 10}})
	})
}

// killed redrives n letters. A kill may cost so many of them a second time.
func killed(t *testing.T, n, concurrency, costs int, kills []order) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		store := fixture.StoreOn(t, db)
		all := open(t, store, config)
		testkit.Must(db.Exec(`CREATE TABLE published (id VARCHAR(64) NOT NULL)`))
		fixture.Publish(t, store, "orders.dlq", fixture.Several(n)...)
		for _, o := range kills {
			o.Concurrency = concurrency
			o.Driver, o.Address = child.Driver(d.Name), address
			child.Killed(t, o)
			if o.Kill == killStart { // as if half a minute had gone by
				testkit.Must(db.Exec(`UPDATE spillway_campaigns SET leased_until = 0`))
			}
		}
		open := testkit.Must(all.List(t.Context(), campaigns.List{}))
		testkit.Require(t, len(open) == 1 && open[0].State == campaigns.Running && open[0].Selected == n, "%+v", open)
		out := &fixture.Outbox{Before: func(_ string, msg *message.Message) error {
			for testkit.Err(db.Exec(`INSERT INTO published (id) VALUES ('`+msg.UUID+`')`)) != nil {
			}
			return nil
		}}
		for range 2 {
			run(t, all, out, campaigns.WorkerConfig{Poll: 50 * time.Millisecond, Lease: 20 * time.Second})
		}
		c := reach(t, all, open[0].ID, campaigns.Finished)
		testkit.Check(t, c.Redriven == n && c.Pending == 0 && c.Gone == 0, "%+v", c)
		fixture.WantCount(t, store, fixture.Status(letters.StatusRedriven), n)
		wantIDs(t, out, len(out.All()))
		var ids, times int
		testkit.NoError(t, db.QueryRow(`SELECT COUNT(DISTINCT id), COUNT(*) FROM published`).Scan(&ids, &times))
		most := n + costs*(len(kills)-1)
		testkit.Check(t, ids == n && times <= most, "%d letters were published %d times, at most %d may be", ids, times, most)
	})
}

// Feature V7, promise P6: a letter that arrives again while it is in hand loses its lease. It is published once, and the
// campaign is through with it.
func TestArrivesAgainInHand(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		store, all := stored(t, d, config, fixture.Several(3)...)
		out := &fixture.Outbox{Before: func(_ string, msg *message.Message) error {
			if msg.UUID == "id-1" {
				return store.Publish("orders.dlq", fixture.Letter("id-1", "{}"))
			}
			return nil
		}}
		run(t, all, out, quick)
		c := reach(t, all, start(t, all, request).ID, campaigns.Finished)
		testkit.Check(t, c.Redriven == 3 && c.Gone == 0, "%+v", c)
		wantIDs(t, out, 3)
		fixture.WantCount(t, store, letters.Filter{IDs: []string{"id-1"}}, 1)
	})
}
