package wmsql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func TestMain(m *testing.M) {
	const watches = "github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(watches))
}

const patience = testkit.Patience

// onEach runs a test on both kinds of databases at the same time.
func onEach(t *testing.T, test func(t *testing.T, b *bench)) {
	for _, d := range databases.All[1:] {
		t.Run(d.Name, func(t *testing.T) { test(t, on(t, d)) })
	}
}

// on lets a test run on one kind of database, beside others.
func on(t *testing.T, d databases.Database) *bench {
	t.Parallel()
	return newBench(t, d, d.Create(t))
}

// bench is a database with a topic, a topic for outputs, and a table of effects.
type bench struct {
	*testing.T
	kind        databases.Database
	address     string
	db          *sql.DB
	topic, outs string
	pub         *wmsql.Publisher
}

func newBench(t *testing.T, kind databases.Database, address string) *bench {
	t.Helper()
	name := "t-" + strings.ToLower(rand.Text()[:8])
	b := &bench{T: t, kind: kind, address: address, db: kind.Open(t, address), topic: name, outs: name + ".out"}
	b.exec(`CREATE TABLE effects (id VARCHAR(255) NOT NULL, step VARCHAR(40) NOT NULL)`)
	b.pub = b.publisher()
	testkit.NoError(t, b.subscriber().SubscribeInitialize(b.topic))
	testkit.NoError(t, b.pub.InitializeTopics(b.outs))
	return b
}

// over is the bench for handlers whose pool is db; b itself still sees the database directly.
func (b *bench) over(db *sql.DB) *bench {
	other := *b
	other.db = db
	other.pub = other.publisher()
	return &other
}

// behind is the bench for handlers whose pool goes through a proxy.
func (b *bench) behind() (*bench, *faultproxy.Proxy) {
	b.Helper()
	db, proxy := b.kind.Behind(b, b.address)
	return b.over(db), proxy
}

// beside is a bench on another topic of the same database.
func (b *bench) beside() *bench {
	b.Helper()
	other := *b
	other.topic, other.outs = b.topic+".x", b.topic+".x.out"
	testkit.NoError(b, b.subscriber().SubscribeInitialize(other.topic))
	testkit.NoError(b, b.pub.InitializeTopics(other.outs))
	return &other
}

func (b *bench) publisher() *wmsql.Publisher {
	b.Helper()
	return testkit.Must(wmsql.NewPublisher(b.Context(), b.db, wmsql.PublisherConfig{}))
}

func (b *bench) subscriber(change ...func(*wmsql.SubscriberConfig)) *wmsql.Subscriber {
	b.Helper()
	config := wmsql.SubscriberConfig{PollInterval: 10 * time.Millisecond}
	*wmsql.NackBackoff(&config) = 10 * time.Millisecond
	for _, f := range change {
		f(&config)
	}
	sub := testkit.Must(wmsql.NewSubscriber(b.Context(), b.db, config))
	b.Cleanup(func() { testkit.Is(b, sub.Close(), nil) })
	return sub
}

// messages subscribes to the topic.
func (b *bench) messages(sub message.Subscriber) <-chan *message.Message {
	b.Helper()
	return testkit.Must(sub.Subscribe(b.Context(), b.topic))
}

func (b *bench) publish(ids ...string) {
	b.Helper()
	for _, id := range ids {
		testkit.NoError(b, b.pub.Publish(b.topic, message.NewMessage(id, []byte("payload of "+id))))
	}
}

// publishAtOnce publishes all with one call.
func (b *bench) publishAtOnce(ids ...string) {
	b.Helper()
	var all []*message.Message
	for _, id := range ids {
		all = append(all, message.NewMessage(id, nil))
	}
	testkit.NoError(b, b.pub.Publish(b.topic, all...))
}

// shop is the service whose messages they are.
var shop = "shop"

func (b *bench) join(sub *wmsql.Subscriber) idempotency.Store {
	b.Helper()
	return testkit.Must(wmsql.Join(b.Context(), sub, shop))
}

// run protects a handler on the topic with a channel whose receiver joins sub's transaction.
func (b *bench) run(sub *wmsql.Subscriber, handle message.HandlerFunc, change ...func(*spillway.Config)) (stop func()) {
	b.Helper()
	return b.runFrom(sub, b.join(sub), handle, change...)
}

func (b *bench) runFrom(sub message.Subscriber, keys idempotency.Store, handle message.HandlerFunc,
	change ...func(*spillway.Config)) (stop func()) {
	b.Helper()
	config := spillway.Config{
		Publisher: b.publisher(), Idempotency: keys,
		Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}},
		Queue: poison.QueueConfig{Origin: wmsql.Origin},
	}
	for _, f := range change {
		f(&config)
	}
	dlc := testkit.Must(spillway.New(context.Background(), config))
	return testkit.RunRouter(b, nil, func(r *message.Router) {
		dlc.Attach(r)
		r.AddHandler("billing", b.topic, sub, b.outs, b.publisher(), handle)
	})
}

// oneBatch lets whatever is there be one batch, whatever the time it takes.
func oneBatch(c *wmsql.SubscriberConfig) { *wmsql.BatchTime(c) = time.Minute }

// once lets a failed attempt be the last, and publishes nothing twice.
func once(c *spillway.Config) { c.Retry.Attempts, c.Queue.PublishAttempts = 1, 1 }

func (b *bench) until(what string, condition func() bool) {
	b.Helper()
	testkit.Eventually(b, what, condition, func() string { return fmt.Sprint("effects ", b.effects()) })
}

// receive takes the next message, which must be id.
func (b *bench) receive(from <-chan *message.Message, id string) *message.Message {
	b.Helper()
	msg := testkit.Receive(b, id+" comes", from)
	testkit.Require(b, msg != nil && msg.UUID == id, "%v came, want %s", msg, id)
	return msg
}

// take reads n messages from a topic, in a group of its own.
func (b *bench) take(topic string, n int) (taken []*message.Message) {
	b.Helper()
	sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = "take" })
	messages := testkit.Must(sub.Subscribe(b.Context(), topic))
	for range n {
		msg := testkit.Receive(b, "a message of "+topic, messages)
		msg.Ack()
		taken = append(taken, msg)
	}
	testkit.Is(b, sub.Close(), nil)
	return taken
}

// consume acks whatever comes and tells when it came.
func (b *bench) consume(change ...func(*wmsql.SubscriberConfig)) <-chan string {
	b.Helper()
	messages := b.messages(b.subscriber(change...))
	ids := make(chan string, 1000)
	go func() {
		for msg := range messages {
			ids <- msg.UUID
			msg.Ack()
		}
	}()
	return ids
}

// comes takes ids in the order given, and nothing else.
func (b *bench) comes(from <-chan string, ids ...string) {
	b.Helper()
	for _, id := range ids {
		got := testkit.Receive(b, id+" comes", from)
		testkit.Require(b, got == id, "%s came, want %s", got, id)
	}
}

// still fails if anything comes for a time.
func (b *bench) still(from <-chan string, d time.Duration) {
	b.Helper()
	select {
	case id := <-from:
		b.Fatalf("%s came too early", id)
	case <-time.After(d):
	}
}
