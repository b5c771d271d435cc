package wmamqp_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// ordered runs a handler with Config.Ordered. standsBy is how long what is parked is due before an idle consumer drains
// it.
func (b *broker) ordered(topic string, db *sql.DB, delay, standsBy time.Duration, handle func(id string) error) (stop func()) {
	b.Helper()
	config := spillway.Config{Service: "shop", DB: db, Logger: watermill.NopLogger{},
		Ordered: &spillway.OrderedConfig{Delays: []time.Duration{delay, delay, delay, delay}}}
	config.Queue.Origin = wmamqp.Origin
	channel := testkit.Must(spillway.New(b.Context(), config))
	sub := b.subscriber(keyed(4), patient, func(c *wmamqp.SubscriberConfig) { *wmamqp.StandsBy(c) = standsBy })
	return testkit.RunRouter(b, watermill.NopLogger{}, func(router *message.Router) {
		channel.Attach(router)
		router.AddConsumerHandler("billing", topic, sub, func(msg *message.Message) error { return handle(msg.UUID) })
	})
}

func parked(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	testkit.NoError(t, db.QueryRow(`SELECT count(*) FROM spillway_parked`).Scan(&n))
	return n
}

var errDown = errors.New("connection refused")

// Feature R13: what a consumer parked and left is found by the next one: in an idle queue by one that stands by, and
// otherwise with the first message, before that is handled.
func TestOrderedResumedWithTheNextConsumer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		standsBy time.Duration
		more     string
	}{"idle": {300 * time.Millisecond, ""}, "first message": {time.Hour, "k0-02"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, db := newBroker(t), databases.Postgres.New(t)
			topic := b.topic()
			b.declareWith(topic, singleActive)
			b.sequences(topic, 1, 2)
			stop := b.ordered(topic, db, 300*time.Millisecond, time.Hour, func(string) error { return errDown })
			eventually(t, "both are parked, and acked", func() bool { return parked(t, db) == 2 && b.ready(topic) == 0 })
			stop()
			want := []string{"k0-00", "k0-01"}
			if row.more != "" {
				want = append(want, row.more)
				b.send(topic, amqp091.Publishing{MessageId: row.more})
			}
			var seen list
			b.ordered(topic, db, time.Millisecond, row.standsBy, func(id string) error { seen.add(id); return nil })
			eventually(t, "all are handled, and nothing is parked", func() bool { return len(seen.get()) >= len(want) && parked(t, db) == 0 })
			got := seen.get()
			testkit.Check(t, strings.Join(got, " ") == strings.Join(want, " "), "handled %v, want %v", got, want)
		})
	}
}

// Feature R13: a message that was parked and comes again, as after a crash before its ack, is acked and not parked
// twice. One that is redriven is another one. Messages without a key wait for none.
func TestOrderedParksOnce(t *testing.T) {
	t.Parallel()
	b, db := newBroker(t), databases.Postgres.New(t)
	topic := b.topic()
	b.declareWith(topic, singleActive)
	var seen list
	b.ordered(topic, db, time.Hour, time.Hour, func(id string) error { seen.add(id); return errDown })
	for _, headers := range []amqp091.Table{nil, nil, {"x-redrive-count": "1"}} {
		b.send(topic, amqp091.Publishing{MessageId: "k0-00", Headers: headers})
	}
	for n := range 2 {
		b.send(topic, amqp091.Publishing{MessageId: fmt.Sprint("-", n)})
	}
	eventually(t, "all are acked", func() bool { return len(seen.get()) == 3 && parked(t, db) == 4 && b.ready(topic) == 0 })
	lanes := 0
	err := db.QueryRow(`SELECT count(DISTINCT lane) FROM spillway_parked`).Scan(&lanes)
	testkit.Check(t, err == nil && lanes == 3, "%d sequences: %v", lanes, err)
}

// The end of a service whose handlers are all busy, as at SIGTERM, logs no error: neither watermill-amqp's loops nor
// our own call the end one, nor what is requeued with it.
func TestOrderlyEndLogsNoError(t *testing.T) {
	t.Parallel()
	b, logger := newBroker(t), &testkit.Log{}
	var topics []string
	for range 4 {
		topics = append(topics, b.queue("quorum"))
		b.numbered(topics[len(topics)-1], 20)
	}
	dead := b.publisher(func(c *wmamqp.PublisherConfig) { c.Logger = logger })
	queue := testkit.Must(poison.NewQueue(dead, poison.QueueConfig{
		Naming: naming.Scheme{DeadLetter: topics[0]}, Shared: observe.Shared{Logger: logger}, Origin: wmamqp.Origin,
	}))
	router := testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: patience}, logger))
	router.AddMiddleware(queue.Middleware)
	var busy atomic.Int32
	var subs []*wmamqp.Subscriber
	for i, topic := range topics {
		sub := b.subscriber(patient, func(c *wmamqp.SubscriberConfig) { c.Logger, c.InFlight = logger, 1+3*(i%2) })
		subs = append(subs, sub)
		router.AddConsumerHandler(topic, topic, sub, func(msg *message.Message) error {
			busy.Add(1)
			<-msg.Context().Done()
			if i < 2 { // it finishes
				return nil
			}
			return msg.Context().Err()
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	eventually(t, "all handlers are busy", func() bool { return busy.Load() == 10 })
	stop()
	testkit.NoError(t, testkit.Receive(t, "the end", ended))
	for _, sub := range subs { // Run may leave them open when its context ends
		b.closed("the subscriber", sub.Close())
	}
	b.closed("the publisher", dead.Close())
	time.Sleep(500 * time.Millisecond) // for what comes late
	errors := logger.Errors()
	testkit.Check(t, len(errors) == 0, "logged %v", errors)
}

const laneVariable = "SPILLWAY_WMAMQP_LANES"

// Features R15, P1: the active consumer is killed by SIGKILL. The standby had nothing until then, goes on in order, and
// loses none. It repeats what the broker had not read the ack of: the reset of a killed client drops the acks on the
// way.
func TestLanesGoOnAfterTheActiveConsumerIsKilled(t *testing.T) {
	t.Parallel()
	const keys, n, lanes, alone, beside = 20, 40, 16, 100, 300 // it begins so many alone, and so many beside the standby
	b := newBroker(t)
	if topic := os.Getenv(laneVariable); topic != "" {
		var calls atomic.Int32
		goOn := make(chan struct{})
		go func() { _, _ = os.Stdin.Read(make([]byte, 1)); close(goOn) }()
		for msg := range b.subscribe(b.subscriber(keyed(lanes)), topic) {
			go func() {
				fmt.Println("begun", msg.UUID)
				if call := calls.Add(1); call > beside {
					select {} // until the kill
				} else if call > alone {
					<-goOn
				}
				msg.Ack()
			}()
		}
		return
	}
	topic := b.topic()
	b.declareWith(topic, singleActive)
	b.sequences(topic, keys, n)

	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "5m")
	child.Env = append(os.Environ(), laneVariable+"="+topic)
	in, out := testkit.Must(child.StdinPipe()), testkit.Must(child.StdoutPipe())
	testkit.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill() })
	var begun, after list // ids
	var killed atomic.Bool
	var early, unmarked atomic.Int32
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var id string
			if _, err := fmt.Sscanf(lines.Text(), "begun %s", &id); err == nil {
				begun.add(id)
			}
		}
	}()
	eventually(t, "the active one is at work", func() bool { return len(begun.get()) >= alone })
	standby := b.subscribe(b.subscriber(keyed(lanes)), topic)
	go newJournal(t).handle(standby, func(msg *message.Message) bool {
		after.add(msg.UUID)
		if !killed.Load() {
			early.Add(1)
		}
		if counted, _ := wmamqp.Counts(msg); slices.Contains(begun.get(), msg.UUID) && !counted.Redelivered {
			unmarked.Add(1)
		}
		return true
	})
	testkit.NoError(t, testkit.Err(in.Write([]byte("\n"))))
	eventually(t, "the active one goes on beside the standby", func() bool { return len(begun.get()) >= beside })
	killed.Store(true)
	testkit.NoError(t, child.Process.Kill())
	<-read
	_ = child.Wait()
	eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
	both := func() []string { return append(begun.get(), after.get()...) }
	eventually(t, "all were handled", func() bool {
		all := both()
		slices.Sort(all)
		return len(slices.Compact(all)) == keys*n
	})

	last, seen, repeated := map[string]string{}, map[string]bool{}, 0
	for _, id := range both() {
		key := keyOf(message.NewMessage(id, nil))
		if seen[id] {
			repeated++
		} else if id < last[key] {
			t.Errorf("%s came for the first time after %s", id, last[key])
		}
		seen[id], last[key] = true, max(last[key], id)
	}
	t.Logf("%d repeated, of %d lanes", repeated, lanes)
	testkit.Check(t, early.Load() == 0 && unmarked.Load() == 0, "%d by the standby before the kill; %d without a mark",
		early.Load(), unmarked.Load())
}
