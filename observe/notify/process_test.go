package notify_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/settings"
)

// order is what a process of its own does: it reports a letter, and is killed when it is about to send the notice.
type order struct{ Driver, Address string }

func (o order) report() error {
	db, err := sql.Open(o.Driver, o.Address)
	if err != nil {
		return err
	}
	kill := func(context.Context, notify.Notice) error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	n, err := notify.New(notify.Config{Sinks: []notify.Sink{kill}, DB: db, Shared: settings.Shared{Service: "shop"}})
	if err != nil {
		return err
	}
	notify.HurryWith(n, time.Second, 10*time.Second)
	config := spillway.Config{Publisher: nowhere{}}
	if err := n.Observe(&config); err != nil {
		return err
	}
	channel, err := spillway.New(context.Background(), config)
	if err == nil {
		err = n.Watch(context.Background(), channel)
	}
	if err != nil {
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

// Feature O4: if the second process is killed too, the notice is given up, and said to be: a notice that kills must not
// kill for ever.
func TestKilledTwice(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		runChild(t, d, address)
		runChild(t, d, address) // whose sweep, or report, finds what the first left behind
		var in inbox
		log := &testkit.Log{}
		one := newInstance(t, d.Open(t, address), notify.Config{Sinks: []notify.Sink{in.sink}, Shared: settings.Shared{Logger: log}}, notify.Hurry)
		testkit.Eventually(t, "it is given up", func() bool { return len(log.Lines(watermill.ErrorLogLevel, "given up")) > 0 })
		one.hooks.OnDeadLetter(context.Background(), letter("b"))
		n := in.one(t, notify.NewCause, notify.StatusNew)
		testkit.Check(t, n.Reason == "b" && n.Missed == 1, "%+v", n)
	})
}
