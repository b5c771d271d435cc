package notify_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/sequence"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/observe/notify"
)

// Feature O4: a held key is a notice, and so is a partition whose parked messages are late, however many there are; and
// each has its end.
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
		testkit.NoError(t, store.Park(t.Context(), sequence.Source{Group: "billing", Topic: "orders", Partition: 7}, &sequence.Row{
			Lane: []byte(row.key), RecordKey: []byte(row.key), Position: int64(position), Fingerprint: sequence.FingerprintOf(msg), Msg: msg,
			Key: sequence.Key{Consumer: "shop/billing", ID: msg.UUID}, Held: row.held}, row.wait))
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
