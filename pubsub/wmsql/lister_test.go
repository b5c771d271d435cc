package wmsql_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature R5 (abandoned stages): topics whose tables hold messages that the group of the same name has not acknowledged are
// told, with how many; those that are consumed, empty or named otherwise are not, and no table of positions is taken for
// a topic.
func TestListWaiting(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		fill := func(topic string, ids ...string) string {
			t.Helper()
			topic = b.topic + topic
			if err := b.pub.InitializeTopics(topic); err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if err := b.pub.Publish(topic, message.NewMessage(id, nil)); err != nil {
					t.Fatal(err)
				}
			}
			return topic
		}
		none, half := fill(".none.retry.1s", "1", "2", "3"), fill(".half.retry.1s", "1", "2", "3")
		done, other := fill(".done.retry.1s", "1", "2"), fill("-other.retry.1s", "1")
		fill(".empty.retry.1s")
		b.ackFirst(half, 2)
		b.ackFirst(done, 2)
		offsets := "offsets_own" // such a name is a topic's too
		if err := b.pub.InitializeTopics(offsets); err != nil {
			t.Fatal(err)
		}
		if err := b.pub.Publish(offsets, message.NewMessage("1", nil)); err != nil {
			t.Fatal(err)
		}
		for prefix, want := range map[string]map[string]int{
			b.topic + ".":     {none: 3, half: 1},
			b.topic:           {none: 3, half: 1, other: 1},
			b.topic + ".half": {half: 1},
			"nobody":          {},
			"offsets_":        {offsets: 1},
			"":                {none: 3, half: 1, other: 1, offsets: 1},
			"%":               {},
			"t_":              {},
		} {
			if found, err := b.pub.ListWaiting(t.Context(), prefix); err != nil || !maps.Equal(found, want) {
				t.Errorf("%q: %v, %v; want %v", prefix, found, err, want)
			}
		}
	})
}

// ackFirst acks the first messages of a topic, in the group of the same name.
func (b *bench) ackFirst(topic string, n int) {
	b.Helper()
	sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.ConsumerGroup, c.InitializeSchema, c.Batch = topic, true, 1 })
	messages, err := sub.Subscribe(b.Context(), topic)
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		(<-messages).Ack()
	}
	b.until("it is acknowledged", func() bool {
		left, err := sub.Backlog(b.Context(), topic)
		if err != nil {
			b.Fatal(err)
		}
		return left == b.backlogOf(topic)-n
	})
	if err := sub.Close(); err != nil {
		b.Fatal(err)
	}
}

// A table whose name is no topic is passed by, and never becomes SQL.
func TestListWaitingOfHostileTables(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		quote := "`"
		if b.isPostgres() {
			quote = `"`
		}
		for _, name := range []string{b.topic + `.a b`, b.topic + `.'; DROP TABLE effects; --`} {
			table := quote + `watermill_` + name + quote
			_, err := b.db.Exec(`CREATE TABLE ` + table + ` (payload INT)`)
			if err == nil {
				_, err = b.db.Exec(`INSERT INTO ` + table + ` VALUES (1)`)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		b.publish("1")
		if found, err := b.pub.ListWaiting(t.Context(), b.topic); err != nil || !maps.Equal(found, map[string]int{b.topic: 1}) {
			t.Errorf("%v, %v", found, err)
		}
		b.effects()
	})
}

// One table that cannot be read is an error that names it, beside what the others hold.
func TestListWaitingPartly(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("1")
		quote := "`"
		if b.isPostgres() {
			quote = `"`
		}
		if _, err := b.db.Exec(`CREATE TABLE ` + quote + `watermill_` + b.topic + `.strange` + quote + ` (payload INT)`); err != nil {
			t.Fatal(err)
		}
		if err := b.subscriber().SubscribeInitialize(b.topic + ".strange"); err != nil { // which leaves the table as it is
			t.Fatal(err)
		}
		found, err := b.pub.ListWaiting(t.Context(), b.topic)
		if err == nil || !strings.Contains(err.Error(), b.topic+".strange") || !maps.Equal(found, map[string]int{b.topic: 1}) {
			t.Errorf("%v, %v", found, err)
		}
	})
}

// What cannot be told is an error, and so is the end of the context or of the publisher.
func TestListWaitingErrors(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.pub.ListWaiting(ended, b.topic); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), b.topic) {
			t.Error(err)
		}
		for name, schema := range map[string]wsql.SchemaAdapter{"embedded": b.embedded(), "own names": b.ownNames()} {
			pub, err := wmsql.NewPublisher(t.Context(), b.db, wmsql.PublisherConfig{Schema: schema})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pub.ListWaiting(t.Context(), b.topic); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		if err := b.pub.Close(); err != nil {
			t.Error(err)
		}
		if _, err := b.pub.ListWaiting(t.Context(), b.topic); !errors.Is(err, wmsql.ErrClosed) {
			t.Error(err)
		}
	})
}

// ownNames is a schema whose tables' names do not end with the topic.
func (b *bench) ownNames() wsql.SchemaAdapter {
	if b.isPostgres() {
		return wsql.DefaultPostgreSQLSchema{GenerateMessagesTableName: func(topic string) string { return `"` + topic + `_messages"` }}
	}
	return wsql.DefaultMySQLSchema{GenerateMessagesTableName: func(topic string) string { return "`" + topic + "_messages`" }}
}
