package wmsql_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func TestPublisherConfig(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for field, config := range map[string]wmsql.PublisherConfig{
			"Timeout": {Timeout: -1},
			"Schema":  {Schema: (*wsql.DefaultPostgreSQLSchema)(nil)},
			"Schema ": {Schema: b.stranger()},
		} {
			if _, err := wmsql.NewPublisher(t.Context(), b.db, config); err == nil || !strings.Contains(err.Error(), "PublisherConfig."+strings.TrimSpace(field)) {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := wmsql.NewPublisher(t.Context(), nil, wmsql.PublisherConfig{}); err == nil {
			t.Error("a publisher to no database")
		}
		if err := b.pub.Publish(b.topic, message.NewMessage("", nil), nil); err == nil || !strings.Contains(err.Error(), "message 2 of 2 is nil") {
			t.Error(err)
		}
		var none context.Context
		if _, err := b.subscriber().Subscribe(none, b.topic); err == nil {
			t.Error("a context that is nil")
		}
		if err := errors.Join(b.pub.Close(), b.pub.Close()); err != nil {
			t.Error(err)
		}
		if err := b.pub.Publish(b.topic, message.NewMessage("late", nil)); !errors.Is(err, wmsql.ErrClosed) {
			t.Error(err)
		}
	})
}

// stranger is watermill-sql's schema for another kind of database.
func (b *bench) stranger() wsql.SchemaAdapter {
	if b.isPostgres() {
		return wsql.DefaultMySQLSchema{}
	}
	return &wsql.DefaultPostgreSQLSchema{}
}

// A name that is no table, or whose table the database would name after another topic, is refused wherever it comes up:
// letters would land in the live table.
func TestTopicsThatAreNoTables(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		sub, live := b.subscriber(), strings.Repeat("x", 53)
		if !b.isPostgres() {
			live += "x"
		}
		if err := b.pub.InitializeTopics(live); err != nil {
			t.Fatal(err)
		}
		for _, topic := range []string{"", `a"b`, "a`b", `"; DROP TABLE effects; --`, "ä", "a b", live + ".dlq", live + "x"} {
			_, subscribed := sub.Subscribe(t.Context(), topic)
			_, counted := sub.Backlog(t.Context(), topic)
			for i, err := range []error{subscribed, counted, sub.SubscribeInitialize(topic), b.pub.InitializeTopics(topic), b.pub.Publish(topic, message.NewMessage("x", nil))} {
				if err == nil {
					t.Errorf("%q: %d is taken", topic, i)
				}
			}
		}
		if _, err := sub.Subscribe(t.Context(), live); err == nil || !strings.Contains(err.Error(), "choose a shorter topic") {
			t.Errorf("its table of positions is longer by 8 letters: %v", err)
		}
		if n := b.backlogOf(live); n != 0 {
			t.Errorf("%d messages in the live table", n)
		}
		if err := b.pub.Publish(live, message.NewMessage("x", nil)); err != nil {
			t.Error(err)
		}
	})
}

// A schema of the user's own that embeds watermill-sql's is measured too.
func TestTopicsOfOwnSchema(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		schema := b.embedded()
		pub, err := wmsql.NewPublisher(t.Context(), b.db, wmsql.PublisherConfig{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.Schema = schema })
		long := strings.Repeat("x", 60)
		if pub.InitializeTopics(long) == nil || sub.SubscribeInitialize(long) == nil {
			t.Error("it is taken")
		}
	})
}

func (b *bench) backlogOf(topic string) (n int) {
	b.Helper()
	if err := b.db.QueryRow(`SELECT count(*) FROM ` + b.table(topic)).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// A missing table is an error of Publish. Many publishers and subscribers at once may create it.
func TestInitializeTopicsAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		topic := b.topic + ".new"
		if err := b.pub.Publish(topic, message.NewMessage("x", nil)); err == nil || !strings.Contains(err.Error(), "InitializeTopics") {
			t.Fatal("there is a table: ", err)
		}
		var all sync.WaitGroup
		for range 8 {
			pub, err := wmsql.NewPublisher(t.Context(), b.db, wmsql.PublisherConfig{})
			if err != nil {
				t.Fatal(err)
			}
			sub := b.subscriber()
			all.Go(func() {
				if err := errors.Join(pub.InitializeTopics(topic), pub.Publish(topic, message.NewMessage("x", []byte{0})),
					sub.SubscribeInitialize(topic)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(b.take(topic, 8)); n != 8 {
			t.Error(n)
		}
	})
}

// Decision 4: what the server would not take is told as too large, inside of a transaction too, where the server would
// end it together with the connection, on every attempt anew.
func TestTooLarge(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if b.isPostgres() {
			t.Skip("PostgreSQL takes a GiB")
		}
		large := func() []byte { return make([]byte, 17<<20) }
		err := b.pub.Publish(b.topic, message.NewMessage("", large()))
		if !(*classify.Classifier)(nil).IsTooLarge(err) || !errors.Is(err, classify.ErrTooLarge) {
			t.Errorf("%v", err)
		}
		if d := differs(b.through(message.NewMessage("fits", large()[2<<20:]))[0], message.NewMessage("fits", large()[2<<20:])); d != "" {
			t.Error("15 MiB: ", d)
		}
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			if err := b.write(msg, "effect"); err != nil || msg.UUID == "good" {
				return nil, err
			}
			if msg.UUID == "statement" {
				_, err := txOf(msg.Context()).Exec(`INSERT INTO effects (id, step) VALUES (?, ?)`, "large", string(large()))
				return nil, err
			}
			return []*message.Message{message.NewMessage("", large())}, nil
		})
		b.publish("output", "good", "statement")
		b.drained()
		if effects, letters := b.effects(), b.letters(); len(effects) != 1 || len(effects["good"]) != 1 || len(letters["output"]) != 1 || len(letters["statement"]) != 1 {
			t.Errorf("effects %v, letters %v", effects, letters)
		}
	})
}
