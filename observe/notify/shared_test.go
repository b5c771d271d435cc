package notify_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/poison"
)

// instance is a Notifier as a process of its own would have it, without a router: its hooks are called by the test.
type instance struct {
	*notify.Notifier
	hooks poison.Hooks
	stop  func() // once
}

func newInstance(t testing.TB, db *sql.DB, with notify.Config, hurry func(*notify.Notifier)) *instance {
	t.Helper()
	with.DB, with.Service = db, "shop"
	n := testkit.Must(notify.New(with))
	hurry(n)
	config := spillway.Config{Publisher: nowhere{}}
	testkit.NoError(t, n.Observe(&config))
	channel := testkit.Must(spillway.New(t.Context(), config))
	testkit.NoError(t, n.Watch(t.Context(), channel))
	n.Start()
	stop := sync.OnceFunc(n.Stop)
	t.Cleanup(stop)
	return &instance{n, config.Queue.Hooks, stop}
}

// Feature O4: a storm of letters in 4 instances is one first notice and one count for each cause, of all.
func TestStorm(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		const instances, causes = 4, 3
		letters := 100_000
		if d.Name != databases.Postgres.Name || testing.Short() {
			letters = 20_000
		}
		var in inbox
		var all []*instance
		for range instances {
			all = append(all, newInstance(t, d.Open(t, address), notify.Config{Sinks: []notify.Sink{in.sink}}, notify.Hurry))
		}
		var storm sync.WaitGroup
		for i, one := range all {
			storm.Go(func() {
				for n := i; n < letters; n += instances {
					one.hooks.OnDeadLetter(context.Background(), letter(cause(n%causes)))
				}
			})
		}
		storm.Wait()
		db := d.Open(t, address)
		number := func(query string) (n int) {
			testkit.NoError(t, db.QueryRow(query).Scan(&n))
			return n
		}
		testkit.Eventually(t, "all letters are counted, and the first notices sent", func() bool {
			return number(`SELECT COALESCE(SUM(total), 0) FROM spillway_notices WHERE kind = 'new_cause'`) == letters &&
				number(`SELECT COUNT(*) FROM spillway_notices WHERE kind = 'new_cause' AND telling = ''`) == causes
		}, in.String)
		if _, err := db.Exec(`UPDATE spillway_notices SET ends_at = 0 WHERE kind = 'new_cause'`); err != nil { // an hour goes by
			t.Fatal(err)
		}
		testkit.Eventually(t, "the summaries", func() bool { return len(in.of(notify.NewCause, notify.StatusSummary)) >= causes }, in.String)
		for _, one := range all {
			one.stop()
		}
		notified := map[string]int64{}
		for _, n := range in.of(notify.NewCause, notify.StatusNew) {
			testkit.Check(t, notified[n.Reason] == 0, "a second first notice: %+v", n)
			notified[n.Reason] = n.Count
		}
		for _, n := range in.of(notify.NewCause, notify.StatusSummary) {
			if notified[n.Reason] += n.Count; n.Total != notified[n.Reason] || n.Description != "order 7 is "+n.Reason {
				t.Errorf("%d of %s are told, and %+v", notified[n.Reason], n.Reason, n)
			}
		}
		sum := int64(0)
		for _, n := range notified {
			sum += n
		}
		testkit.Check(t, len(notified) == causes && sum == int64(letters) && len(in.all) == 2*causes,
			"%d letters of %d causes are told in %d notices: %v", sum, len(notified), len(in.all), in.String())
	})
}

// Feature O4: what a closing instance has not begun to send, another sends at once. Started again, a Notifier goes on.
func TestHandOver(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var in inbox
		begun := make(chan string, 100)
		hangs := func(ctx context.Context, n notify.Notice) error { begun <- n.Reason; <-ctx.Done(); return ctx.Err() }
		one := newInstance(t, d.Open(t, address), notify.Config{Sinks: []notify.Sink{hangs}}, func(n *notify.Notifier) {
			notify.Hurry(n)
			notify.End(n, 10*time.Millisecond)
		})
		for i := range 5 {
			one.hooks.OnDeadLetter(context.Background(), letter(cause(i)))
		}
		first := testkit.Receive(t, "the first notice", begun)
		db := d.Open(t, address)
		testkit.Eventually(t, "5 claims", func() bool {
			n := 0
			return db.QueryRow(`SELECT COUNT(*) FROM spillway_notices WHERE kind = 'new_cause' AND telling = 'new'`).Scan(&n) == nil && n == 5
		})
		one.stop()
		newInstance(t, d.Open(t, address), notify.Config{Sinks: []notify.Sink{in.sink}}, notify.Hurry)
		testkit.Eventually(t, "the notices that were not begun", func() bool { return len(in.of(notify.NewCause, notify.StatusNew)) >= 4 }, in.String)
		for _, n := range in.of(notify.NewCause, notify.StatusNew) {
			testkit.Check(t, n.Reason != first, "%+v was begun, and its lease goes on", n)
		}
		one.Start()
		defer one.Stop()
		one.hooks.OnDeadLetter(context.Background(), letter("x"))
		for testkit.Receive(t, "a notice after the second start", begun) != "x" {
		}
	})
}

// order is what a process of its own does: it reports a letter, and is killed when it is about to send the notice.
type order struct{ Driver, Address string }

func (o order) report() error {
	db := testkit.Must(sql.Open(o.Driver, o.Address))
	kill := func(context.Context, notify.Notice) error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	n := testkit.Must(notify.New(notify.Config{Sinks: []notify.Sink{kill}, DB: db, Service: "shop"}))
	notify.HurryWith(n, time.Second, 10*time.Second)
	config := spillway.Config{Publisher: nowhere{}}
	if err := n.Observe(&config); err != nil {
		return err
	}
	if err := n.Watch(context.Background(), testkit.Must(spillway.New(context.Background(), config))); err != nil {
		return err
	}
	n.Start()
	config.Queue.Hooks.OnDeadLetter(context.Background(), letter("a"))
	time.Sleep(testkit.Patience)
	return errors.New("it was not killed")
}

// runChild runs a process until it is killed.
func runChild(t *testing.T, d databases.Database, address string) {
	t.Helper()
	cmd := child.Command(t, order{child.Driver(d.Name), address})
	err := cmd.Run()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	testkit.Require(t, ok && status.Signaled(), "the process was not killed: %v", err)
}

// Feature O4: a process that is killed between its claim and the delivery has another send the notice, once.
func TestKilled(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		runChild(t, d, address)
		var in inbox
		one := newInstance(t, d.Open(t, address), notify.Config{Sinks: []notify.Sink{in.sink}}, notify.Hurry)
		n := in.one(t, notify.NewCause, notify.StatusNew)
		testkit.Check(t, n.Reason == "a" && n.Count == 1, "%+v", n)
		one.hooks.OnDeadLetter(context.Background(), letter("a"))
		one.hooks.OnDeadLetter(context.Background(), letter("b")) // which is told after what is still due of a
		testkit.Eventually(t, "the notice of b", func() bool { return len(in.of(notify.NewCause, notify.StatusNew)) > 1 }, in.String)
		one.stop()
		all := in.of(notify.NewCause, notify.StatusNew)
		testkit.Check(t, len(all) == 2 && all[1].Reason == "b", "%+v", all)
	})
}

// Feature O4: if the second process is killed too, the notice is given up, and said to be: it must not kill for ever.
func TestKilledTwice(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		runChild(t, d, address)
		runChild(t, d, address) // whose sweep, or report, finds what the first left behind
		var in inbox
		log := &testkit.Log{}
		one := newInstance(t, d.Open(t, address), notify.Config{Sinks: []notify.Sink{in.sink}, Shared: observe.Shared{Logger: log}}, notify.Hurry)
		testkit.Eventually(t, "it is given up", func() bool { return len(log.Lines(watermill.ErrorLogLevel, "given up")) > 0 })
		one.hooks.OnDeadLetter(context.Background(), letter("b"))
		n := in.one(t, notify.NewCause, notify.StatusNew)
		testkit.Check(t, n.Reason == "b" && n.Missed == 1, "%+v", n)
	})
}
