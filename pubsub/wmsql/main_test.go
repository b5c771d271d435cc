package wmsql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

const patience = testkit.Patience

// onEach runs a test on both kinds of databases at the same time.
func onEach(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		address := postgrestest.Schema(t)
		test(t, newBench(t, func(t testing.TB) *sql.DB { return postgrestest.Open(t, address) }))
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		dsn := mysqltest.Database(t)
		test(t, newBench(t, func(t testing.TB) *sql.DB { return mysqltest.Open(t, dsn) }))
	})
}

// bench is a database with a topic, a topic for outputs, and a table of effects.
type bench struct {
	*testing.T
	open        func(testing.TB) *sql.DB // another pool on the same database
	db          *sql.DB
	topic, outs string
	pub         *wmsql.Publisher
}

func newBench(t *testing.T, open func(testing.TB) *sql.DB) *bench {
	t.Helper()
	name := "t-" + strings.ToLower(rand.Text()[:8])
	b := &bench{T: t, open: open, db: open(t), topic: name, outs: name + ".out"}
	if _, err := b.db.Exec(`CREATE TABLE effects (id VARCHAR(255) NOT NULL, step VARCHAR(40) NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	b.pub = b.publisher()
	if err := b.subscriber().SubscribeInitialize(b.topic); err != nil {
		t.Fatal(err)
	}
	if err := b.pub.InitializeTopics(b.outs); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) publisher() *wmsql.Publisher {
	b.Helper()
	pub, err := wmsql.NewPublisher(b.Context(), b.db, wmsql.PublisherConfig{})
	if err != nil {
		b.Fatal(err)
	}
	return pub
}

func (b *bench) subscriber(change ...func(*wmsql.SubscriberConfig)) *wmsql.Subscriber {
	b.Helper()
	config := wmsql.SubscriberConfig{PollInterval: 10 * time.Millisecond, NackBackoff: 10 * time.Millisecond}
	for _, f := range change {
		f(&config)
	}
	sub, err := wmsql.NewSubscriber(b.Context(), b.db, config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := sub.Close(); err != nil {
			b.Error(err)
		}
	})
	return sub
}

// messages subscribes to the topic.
func (b *bench) messages(sub message.Subscriber) <-chan *message.Message {
	b.Helper()
	messages, err := sub.Subscribe(b.Context(), b.topic)
	if err != nil {
		b.Fatal(err)
	}
	return messages
}

func (b *bench) publish(ids ...string) {
	b.Helper()
	for _, id := range ids {
		if err := b.pub.Publish(b.topic, message.NewMessage(id, []byte("payload of "+id))); err != nil {
			b.Fatal(err)
		}
	}
}

// shop is the service whose messages they are.
var shop = "shop"

func (b *bench) join(sub *wmsql.Subscriber) idempotency.Store {
	b.Helper()
	keys, err := wmsql.Join(b.Context(), sub, shop)
	if err != nil {
		b.Fatal(err)
	}
	return keys
}

// run protects a handler on the topic with a channel whose receiver joins sub's transaction.
func (b *bench) run(sub *wmsql.Subscriber, handle message.HandlerFunc, change ...func(*spillway.Config)) (stop func()) {
	b.Helper()
	return b.runFrom(sub, b.join(sub), handle, change...)
}

func (b *bench) runFrom(sub message.Subscriber, keys idempotency.Store, handle message.HandlerFunc, change ...func(*spillway.Config)) (stop func()) {
	b.Helper()
	config := spillway.Config{
		Publisher: b.publisher(), Idempotency: keys,
		Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}},
		Queue: poison.QueueConfig{Origin: wmsql.Origin},
	}
	for _, f := range change {
		f(&config)
	}
	dlc, err := spillway.New(context.Background(), config)
	if err != nil {
		b.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, nil)
	if err != nil {
		b.Fatal(err)
	}
	dlc.Attach(router)
	router.AddHandler("billing", b.topic, sub, b.outs, b.publisher(), handle)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	stop = sync.OnceFunc(func() {
		if err := errors.Join(router.Close(), <-done); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(stop)
	select {
	case <-router.Running():
	case err := <-done:
		b.Fatal("the router did not start: ", err)
	}
	return stop
}

// write writes one of the message's effects in its transaction.
func (b *bench) write(msg *message.Message, step string) error {
	return insert(idempotency.Tx(msg.Context()), msg.UUID, step)
}

func insert(tx interface {
	Exec(string, ...any) (sql.Result, error)
}, id, step string) error {
	_, err := tx.Exec(`INSERT INTO effects (id, step) VALUES ('` + id + `', '` + step + `')`)
	return err
}

// effects returns the steps that were committed, by id.
func (b *bench) effects() map[string][]string {
	b.Helper()
	rows, err := b.db.Query(`SELECT id, step FROM effects`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	steps := map[string][]string{}
	for rows.Next() {
		var id, step string
		if err := rows.Scan(&id, &step); err != nil {
			b.Fatal(err)
		}
		steps[id] = append(steps[id], step)
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	return steps
}

// backlog counts what a group that reads a topic from its start has before it.
func (b *bench) backlog(topic, group string) int {
	b.Helper()
	n, err := b.subscriber(func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = group }).Backlog(b.Context(), topic)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func (b *bench) until(what string, condition func() bool) {
	b.Helper()
	testkit.Eventually(b, what, condition, func() string { return fmt.Sprint("effects ", b.effects()) })
}

// ends calls f, which must return although nothing else happens.
func (b *bench) ends(what string, f func()) {
	b.Helper()
	testkit.Within(b, what, f)
}

// take reads n messages from a topic, in a group of its own.
func (b *bench) take(topic string, n int) []*message.Message {
	b.Helper()
	sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = "take" })
	messages, err := sub.Subscribe(b.Context(), topic)
	if err != nil {
		b.Fatal(err)
	}
	var taken []*message.Message
	for range n {
		select {
		case msg := <-messages:
			msg.Ack()
			taken = append(taken, msg)
		case <-time.After(patience):
			b.Fatalf("%q gave no more than %d messages", topic, len(taken))
		}
	}
	if err := sub.Close(); err != nil {
		b.Error(err)
	}
	return taken
}
