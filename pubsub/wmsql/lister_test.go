package wmsql_test

import (
	"context"
	"maps"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// A table whose name is no topic never becomes SQL. One that cannot be read is an error beside what others hold.
func TestListWaitingOfHostileTables(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		quote := b.sql(`"`, "`")
		for _, name := range []string{b.topic + `.a b`, b.topic + `.'; DROP TABLE effects; --`} {
			table := quote + `watermill_` + name + quote
			b.exec(`CREATE TABLE ` + table + ` (payload INT)`)
			b.exec(`INSERT INTO ` + table + ` VALUES (1)`)
		}
		b.publish("1")
		found, err := b.pub.ListWaiting(t.Context(), b.topic)
		testkit.Check(t, err == nil && maps.Equal(found, map[string]int{b.topic: 1}), "%v, %v", found, err)
		b.effects()
		b.exec(`CREATE TABLE ` + b.table(b.topic+".strange") + ` (payload INT)`)
		testkit.NoError(t, b.subscriber().SubscribeInitialize(b.topic+".strange")) // which leaves the table as it is
		found, err = b.pub.ListWaiting(t.Context(), b.topic)
		testkit.Says(t, err, b.topic+".strange")
		testkit.Check(t, maps.Equal(found, map[string]int{b.topic: 1}), "%v", found)
	})
}

// What cannot be told is an error, and so is the end of the context or of the publisher.
func TestListWaitingErrors(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.pub.ListWaiting(ended, b.topic)
		testkit.Is(t, err, context.Canceled)
		testkit.Says(t, err, b.topic)
		named := func(topic string) string { return b.sql(`"`, "`") + topic + `_messages` + b.sql(`"`, "`") }
		ownNames := wsql.SchemaAdapter(wsql.DefaultMySQLSchema{GenerateMessagesTableName: named})
		if b.isPostgres() {
			ownNames = wsql.DefaultPostgreSQLSchema{GenerateMessagesTableName: named}
		}
		for says, schema := range map[string]wsql.SchemaAdapter{"own": b.embedded(), "does not end": ownNames} {
			pub := testkit.Must(wmsql.NewPublisher(t.Context(), b.db, wmsql.PublisherConfig{Schema: schema}))
			testkit.Says(t, testkit.Err(pub.ListWaiting(t.Context(), b.topic)), says)
		}
		testkit.Is(t, b.pub.Close(), nil)
		testkit.Is(t, testkit.Err(b.pub.ListWaiting(t.Context(), b.topic)), wmsql.ErrClosed)
	})
}
