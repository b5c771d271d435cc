package notify_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// quick looks often.
func quick(n *notify.Notifier) { notify.Look(n, 20*time.Millisecond, 200*time.Millisecond) }

// some waits for a notice of a kind and status, and returns the first: on a slow machine there may be more.
func (b *inbox) some(t testing.TB, kind notify.Kind, status notify.Status) notify.Notice {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("a notice %s of %s", status, kind), func() bool { return len(b.of(kind, status)) > 0 }, b.String)
	return b.of(kind, status)[0]
}

// stored puts letters of a cause into the channel's store, first failed long ago.
func stored(t testing.TB, store *letters.Store, cause string, n int) {
	t.Helper()
	for i := range n {
		l := letter(cause)
		l.Original = message.NewMessage(fmt.Sprint(cause, i), []byte("{}"))
		l.Failure.FirstFailedAt = time.Now().Add(-48 * time.Hour)
		testkit.NoError(t, store.Publish("orders.dlq", l.Encode()))
	}
}

// Feature O4: letters that wait are too many, or too old, until they are gone.
func TestLettersWait(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var in inbox
		with := notify.Config{Threshold: 3, Sinks: []notify.Sink{in.sink}}
		s := start(t, with, spillway.Config{Service: "shop", DB: d.Open(t, address)}, nil, quick)
		stored(t, s.channel.Letters(), "many", 5)
		stored(t, s.channel.Letters(), "few", 2)
		n := in.some(t, notify.Threshold, notify.StatusNew)
		testkit.Check(t, n.Reason == "many" && n.Count >= 3 && n.Count <= 5 && n.Topic == "orders" &&
			n.Handler == "billing" && n.Description == "order 7 is many" &&
			n.Title == fmt.Sprintf("%d dead letters of a cause wait: orders, billing, many", n.Count), "%+v", n)
		old := in.some(t, notify.OldestLetter, notify.StatusNew)
		age := time.Since(old.First)
		testkit.Check(t, age >= 47*time.Hour && age <= 49*time.Hour && old.Cause == n.Cause, "%+v", old)
		found := in.of(notify.NewCause, notify.StatusNew)
		testkit.Check(t, len(found) == 0, "letters from elsewhere are no new cause: %+v", found)
		testkit.Must(s.channel.Letters().MarkAll(t.Context(), letters.Filter{}, letters.StatusDiscarded,
			letters.Act{By: "ann", Reason: "a test"}))
		over := in.some(t, notify.Threshold, notify.StatusResolved)
		testkit.Check(t, over.Reason == "many" && over.Cause == n.Cause, "%+v", over)
		in.some(t, notify.OldestLetter, notify.StatusResolved)
		s.stop()
		for _, n := range in.of(notify.Threshold, notify.StatusNew) {
			testkit.Check(t, n.Reason == "many", "%+v", n)
		}
	})
}

// Features V16, O4: a snoozed cause makes no notice: not of new letters, not of their number, not of their age. As it grows
// it wakes, and that is a notice, with what is said of it, until it is snoozed again.
func TestSnoozed(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var in inbox
		with := notify.Config{Threshold: 3, Sinks: []notify.Sink{in.sink}}
		s := start(t, with, spillway.Config{Service: "shop", DB: d.Open(t, address)}, func(msg *message.Message) error {
			reason, _, _ := strings.Cut(msg.UUID, "-")
			return classify.Permanent(errors.New("order 7 is "+reason), classify.Reason(reason))
		}, quick)
		store := s.channel.Letters()
		arrive := func(reason string, from, to int) string {
			for i := from; i < to; i++ {
				s.publish(t, fmt.Sprintf("%s-%d", reason, i))
			}
			f := letters.Filter{Reasons: []string{reason}, Topics: []string{"orders"}}
			testkit.Eventually(t, "the letters of "+reason, func() bool { return testkit.Must(store.Count(t.Context(), f)) == to })
			return testkit.Must(store.Groups(t.Context(), f))[0].Cause
		}
		note, until := "the ledger is slow", time.Now().Add(time.Hour)
		snooze := func(cause string) {
			testkit.Must(hidden.Of(store).ChangeNote(t.Context(), cause, inside.CauseChange{Note: &note, SnoozedUntil: &until},
				letters.Act{By: "ann", Reason: "INC-7"}))
		}
		known := arrive("known", 0, 2)
		testkit.Eventually(t, "its first notice", func() bool { return len(in.of(notify.NewCause, notify.StatusNew)) == 1 }, in.String)
		snooze(known)
		testkit.Must(d.Open(t, address).Exec(`DELETE FROM spillway_notices`)) // it is as if a whole window went by
		testkit.Must(d.Open(t, address).Exec(`UPDATE spillway_dead_letters SET first_failed_at = first_failed_at - 172800000000, stored_at = stored_at - 172800000000`))
		arrive("known", 2, 8) // 4 times as many and 1 fewer than would wake it: it is too many, and too old
		arrive("other", 0, 1)
		testkit.Eventually(t, "the notice of another cause", func() bool { return len(in.of(notify.NewCause, notify.StatusNew)) == 2 }, in.String)
		polled := time.Now()
		testkit.Eventually(t, "a look at the letters", func() bool { return time.Since(polled) > 500*time.Millisecond })
		for _, n := range in.of(notify.NewCause, notify.StatusNew)[1:] {
			testkit.Check(t, n.Reason == "other", "of a snoozed cause: %+v", n)
		}
		for _, kind := range []notify.Kind{notify.Threshold, notify.OldestLetter, notify.CauseGrew} {
			testkit.Check(t, len(in.of(kind, notify.StatusNew)) == 0, "of a snoozed cause: %+v", in.of(kind, notify.StatusNew))
		}
		arrive("known", 8, 12)
		n := in.some(t, notify.CauseGrew, notify.StatusNew)
		testkit.Check(t, n.Cause == known && n.Reason == "known" && n.Description == note && n.Count >= 10 &&
			n.Title == "A snoozed cause grew: orders, billing, known", "%+v", n)
		in.some(t, notify.Threshold, notify.StatusNew)
		in.some(t, notify.OldestLetter, notify.StatusNew)
		woken := testkit.Must(hidden.Of(store).Notes(t.Context()))[known]
		testkit.Check(t, woken.Grown() && len(testkit.Must(store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventCause}}))) == 2,
			"it is not on record once: %+v", woken)
		snooze(known)
		in.some(t, notify.CauseGrew, notify.StatusResolved)
		testkit.Equal(t, "notices of new causes", len(in.of(notify.NewCause, notify.StatusNew)), 2)
	})
}

// Feature O4: a campaign that stopped itself is a notice, and one that a person paused is none.
func TestCampaignStops(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var in inbox
		db := d.Open(t, address)
		store := testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "shop"}))
		all := testkit.Must(campaigns.New(t.Context(), store, campaigns.Config{Allow: []string{"orders"}}))
		s := start(t, notify.Config{Sinks: []notify.Sink{in.sink}}, spillway.Config{Service: "shop", DB: db}, nil, quick, all)
		began := func(cause, by, why string) campaigns.Campaign {
			stored(t, s.channel.Letters(), cause, 1)
			c, err := all.Start(t.Context(), campaigns.Request{Filter: letters.Filter{Reasons: []string{cause}}, Act: campaigns.Act{By: "ann", Reason: "repaired"}})
			if err == nil {
				c, err = all.Pause(t.Context(), c.ID, campaigns.Act{By: by, Reason: why})
			}
			testkit.NoError(t, err)
			return c
		}
		began("a", "ann", "lunch")
		c := began("b", campaigns.ByItself, "60 of 100 letters heard of failed again")
		n := in.some(t, notify.CampaignStopped, notify.StatusNew)
		testkit.Check(t, n.Subject == c.ID && n.Description == "60 of 100 letters heard of failed again" &&
			n.Title == "Campaign "+c.ID+" stopped itself", "%+v", n)
		testkit.Must(all.Cancel(t.Context(), c.ID, campaigns.Act{By: "ann", Reason: "enough"}))
		over := in.some(t, notify.CampaignStopped, notify.StatusResolved)
		testkit.Check(t, over.Subject == c.ID, "%+v", over)
	})
}

// refusing refuses all letters while away.
type refusing struct {
	nowhere
	unavailable atomic.Bool
}

func (r *refusing) Publish(string, ...*message.Message) error {
	if r.unavailable.Load() {
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return nil
}

// Feature O4: a publisher of letters that is unavailable is a notice, and one when it is back.
func TestStoreUnavailable(t *testing.T) {
	var in inbox
	pub := &refusing{}
	pub.unavailable.Store(true)
	s := start(t, notify.Config{Sinks: []notify.Sink{in.sink}}, spillway.Config{Publisher: pub, Queue: poison.QueueConfig{PublishAttempts: 1}},
		func(*message.Message) error { return errors.New("boom") }, quick)
	s.publish(t, "1")
	n := in.some(t, notify.StoreUnavailable, notify.StatusNew)
	testkit.Check(t, n.Subject != "" && strings.Contains(n.Title, n.Subject), "%+v", n)
	pub.unavailable.Store(false)
	in.some(t, notify.StoreUnavailable, notify.StatusResolved)
	in.some(t, notify.NewCause, notify.StatusNew)
}

// Feature O4: while the notices' database is unavailable no hook waits, it is said, and letters are told later,
// counted.
func TestDatabaseUnavailable(t *testing.T) {
	address := testkit.Must(url.Parse(databases.Postgres.Create(t)))
	proxy := testkit.Must(faultproxy.New(address.Host))
	defer proxy.Close()
	address.Host = proxy.Addr()
	for name, fault := range map[string]func(){"cut": proxy.Cut, "silent": proxy.HalfOpen} {
		t.Run(name, func(t *testing.T) {
			proxy.Heal()
			db := databases.Postgres.Open(t, address.String())
			var in inbox
			one := newInstance(t, db, notify.Config{Sinks: []notify.Sink{in.sink}}, func(n *notify.Notifier) {
				notify.HurryWith(n, 20*time.Second, 2*time.Second)
				notify.Look(n, 100*time.Millisecond, time.Second)
			})
			one.hooks.OnDeadLetter(context.Background(), letter("before"+name))
			testkit.Eventually(t, "the first notice", func() bool { return len(in.of(notify.NewCause, notify.StatusNew)) > 0 })
			fault()
			for range 1000 { // each returns: there is no more to wait for than a lock
				one.hooks.OnDeadLetter(context.Background(), letter("while"+name))
			}
			n := in.some(t, notify.StoreUnavailable, notify.StatusNew)
			testkit.Check(t, n.Subject == "the database of the notices" &&
				!strings.Contains(fmt.Sprintf("%+v", n), "spillway:spillway@"), "%+v", n)
			proxy.Heal()
			testkit.Eventually(t, "the letters of the outage", func() bool { return len(in.of(notify.NewCause, notify.StatusNew)) > 1 }, in.String)
			late := in.of(notify.NewCause, notify.StatusNew)[1]
			testkit.Check(t, late.Reason == "while"+name && late.Count == 1000, "%+v", late)
			in.some(t, notify.StoreUnavailable, notify.StatusResolved)
			one.stop()
		})
	}
}

// Feature O4: a held key is a notice, and so is a partition that is late, however many; and each has its end.
func TestSequencesStand(t *testing.T) {
	db := databases.SQLite.New(t)
	store := testkit.Must(sequence.NewStore(t.Context(), db, "shop"))
	for position, row := range []struct {
		key  string
		wait time.Duration
		held bool
	}{{"customer-1", -time.Hour, false}, {"customer-2", -2 * time.Hour, false}, {"customer-3", -time.Hour, true}, {"customer-3", time.Hour, false},
		{"customer-4", time.Hour, false}} {
		msg := message.NewMessage("id-"+row.key, nil)
		testkit.NoError(t, store.Park(t.Context(), parked.Source{Group: "billing", Topic: "orders", Partition: 7}, &sequence.Row{
			Lane: []byte(row.key), RecordKey: []byte(row.key), Position: int64(position), Fingerprint: sequence.FingerprintOf(msg), Msg: msg,
			Key: keytable.Key{Consumer: "shop/billing", ID: msg.UUID}, Held: row.held}, row.wait))
	}
	var in inbox
	start(t, notify.Config{Sinks: []notify.Sink{in.sink}}, spillway.Config{Service: "shop", DB: db}, nil, func(n *notify.Notifier) {
		notify.Look(n, 20*time.Millisecond, time.Second)
	})
	held := in.one(t, notify.SequenceHeld, notify.StatusNew)
	testkit.Check(t, held.Subject == "customer-3" && held.Handler == "billing" &&
		held.Title == "The messages of a key are held: orders, billing" &&
		held.Description == "message id-customer-3, partition 7, offset 2; 2 parked", "%+v", held)
	late := in.one(t, notify.SequenceLate, notify.StatusNew)
	age := time.Since(late.First)
	testkit.Check(t, age >= 2*time.Hour && age <= 3*time.Hour &&
		late.Title == "Parked messages are late: orders, partition 7" &&
		late.Description == "5 messages of 4 keys are parked for the group billing", "%+v", late)
	testkit.Must(db.ExecContext(t.Context(), `DELETE FROM spillway_parked`))
	over := in.one(t, notify.SequenceHeld, notify.StatusResolved)
	testkit.Check(t, over.Subject == "customer-3", "%+v", over)
	in.one(t, notify.SequenceLate, notify.StatusResolved)
}

// A Notifier whose Plugin was forgotten sends nothing, and the log says so.
func TestPluginForgotten(t *testing.T) {
	for _, added := range []bool{false, true} {
		var log testkit.Log
		n := testkit.Must(notify.New(notify.Config{Sinks: []notify.Sink{new(inbox).sink}}))
		channel := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: nowhere{}, Logger: &log, Observers: []spillway.Observer{n}}))
		testkit.NoError(t, n.Watch(t.Context(), channel))
		testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
			channel.Attach(r)
			if added {
				r.AddPlugin(n.Plugin)
			}
			r.AddConsumerHandler("billing", "orders", gochannel.NewGoChannel(gochannel.Config{}, nil), func(*message.Message) error { return nil })
		})
		said := len(log.Lines(watermill.ErrorLogLevel, "sends nothing")) > 0
		testkit.Check(t, said != added, "the Plugin is there: %v, and the log has %+v", added, log.Errors())
	}
}
