package wmsql_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

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
