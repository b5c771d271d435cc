package wmsql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func TestPublisherConfig(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for field, config := range map[string]wmsql.PublisherConfig{
			"Timeout":  {Timeout: -1},
			"Schema":   {Schema: (*wsql.DefaultPostgreSQLSchema)(nil)},
			"Schema ":  {Schema: b.stranger()},
			"Schema\t": {Schema: embedded{b.stockSchema()}},
		} {
			_, err := wmsql.NewPublisher(t.Context(), b.db, config)
			testkit.Says(t, err, "PublisherConfig."+strings.TrimSpace(field))
		}
		_, noDatabase := wmsql.NewPublisher(t.Context(), nil, wmsql.PublisherConfig{})
		testkit.Check(t, noDatabase != nil, "a publisher to no database")
		testkit.Says(t, b.pub.Publish(b.topic, message.NewMessage("", nil), nil), "message 2 of 2 is nil")
		var none context.Context
		testkit.Check(t, testkit.Err(b.subscriber().Subscribe(none, b.topic)) != nil, "a context that is nil")
		testkit.Is(t, errors.Join(b.pub.Close(), b.pub.Close()), nil)
		testkit.Is(t, b.pub.Publish(b.topic, message.NewMessage("late", nil)), wmsql.ErrClosed)
	})
}

// embedded is a schema of a user's own.
type embedded struct{ wsql.SchemaAdapter }

// stranger is watermill-sql's schema for another kind of database.
func (b *bench) stranger() wsql.SchemaAdapter {
	if b.isPostgres() {
		return wsql.DefaultMySQLSchema{}
	}
	return &wsql.DefaultPostgreSQLSchema{}
}

// A name that is no table, or that the database would cut to another topic's, is refused.
func TestTopicsThatAreNoTables(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		sub, live := b.subscriber(), strings.Repeat("x", 53)
		if !b.isPostgres() {
			live += "x"
		}
		testkit.NoError(t, b.pub.InitializeTopics(live))
		for _, topic := range []string{"", `a"b`, "a`b", `"; DROP TABLE effects; --`, "ä", "a b", live + ".dlq", live + "x"} {
			_, subscribed := sub.Subscribe(t.Context(), topic)
			_, counted := sub.Backlog(t.Context(), topic)
			for i, err := range []error{
				subscribed, counted, sub.SubscribeInitialize(topic), b.pub.InitializeTopics(topic),
				b.pub.Publish(topic, message.NewMessage("x", nil)),
			} {
				testkit.Check(t, err != nil, "%q: %d is taken", topic, i)
			}
		}
		testkit.Says(t, testkit.Err(sub.Subscribe(t.Context(), live)), "choose a shorter topic")
		testkit.Equal(t, "messages in the live table", b.rows(live), 0)
		testkit.Is(t, b.pub.Publish(live, message.NewMessage("x", nil)), nil)
	})
}

// A missing table is an error of Publish. Many publishers and subscribers at once may create it.
func TestInitializeTopicsAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		topic := b.topic + ".new"
		testkit.Says(t, b.pub.Publish(topic, message.NewMessage("x", nil)), "InitializeTopics")
		var all sync.WaitGroup
		for range 8 {
			pub := testkit.Must(wmsql.NewPublisher(t.Context(), b.db, wmsql.PublisherConfig{}))
			sub := b.subscriber()
			all.Go(func() {
				testkit.Is(t, errors.Join(pub.InitializeTopics(topic),
					pub.Publish(topic, message.NewMessage("x", []byte{0})),
					sub.SubscribeInitialize(topic)), nil)
			})
		}
		all.Wait()
		b.take(topic, 8)
	})
}

// Decision 4, features D9, I3, promise P4: what is too large is a letter after one attempt. The next is handled.
func TestTooLarge(t *testing.T) {
	b := on(t, databases.MariaDB) // PostgreSQL takes a GiB
	large := func() []byte { return make([]byte, 17<<20) }
	err := b.pub.Publish(b.topic, message.NewMessage("", large()))
	testkit.Check(t, (*classify.Classifier)(nil).IsTooLarge(err) && errors.Is(err, classify.ErrTooLarge), "%v", err)
	fits := message.NewMessage("fits", large()[2<<20:])
	testkit.Equal(t, "15 MiB", differs(b.through(fits)[0], fits), "")
	sub := b.subscriber(oneBatch)
	var attempts deliveries
	b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
		attempts.add(msg.UUID)
		if err := b.write(msg, "effect"); err != nil || msg.UUID == "good" {
			return nil, err
		}
		if msg.UUID == "statement" {
			_, err := txOf(msg.Context()).Exec(`INSERT INTO effects (id, step) VALUES (?, ?)`, "large", string(large()))
			return nil, err
		}
		return []*message.Message{message.NewMessage("", large())}, nil
	}, func(c *spillway.Config) {
		c.Stages = &stages.Config{
			Subscriber: func(string, string) (message.Subscriber, error) { return sub, nil }, Publisher: b.publisher(),
			Store:  testkit.Must(delay.NewStore(t.Context(), b.db, "shop")),
			Stages: []stages.Stage{{Delay: time.Hour}},
		}
	})
	b.publish("output", "good", "statement")
	b.drained()
	effects, letters := b.effects(), b.letters()
	testkit.Check(t, len(effects) == 1 && len(effects["good"]) == 1 && len(letters["output"]) == 1 &&
		len(letters["statement"]) == 1,
		"effects %v, letters %v", effects, letters)
	testkit.Equal(t, "attempts at the output", attempts.get()["output"], 1)
}

// Outputs that are too large for one statement are written by several, together or not at all.
func TestLargeTogether(t *testing.T) {
	b := on(t, databases.MariaDB)
	var outs []*message.Message
	for i := range 5 {
		outs = append(outs, message.NewMessage(fmt.Sprint(i), make([]byte, 5<<20)))
	}
	testkit.Is(t, b.pub.Publish(b.outs, outs...), nil)
	testkit.Equal(t, "written", b.rows(b.outs), len(outs))
	err := b.pub.Publish(b.outs, append(outs, message.NewMessage("too large", make([]byte, 17<<20)))...)
	testkit.Is(t, err, classify.ErrTooLarge)
	testkit.Equal(t, "written", b.rows(b.outs), len(outs))
}
