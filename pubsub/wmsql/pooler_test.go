package wmsql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Promise P1, feature D9: behind a pooler in transaction mode, with each remedy, every message is handled once.
func TestPooler(t *testing.T) {
	for _, mode := range []string{"exec", "cache_describe", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			address := services.PgBouncer(t, postgrestest.Schema(t), "pool_mode = transaction", "default_pool_size = 8")
			b := newBench(t, databases.Postgres, address+"&default_query_exec_mode="+mode)
			for range 2 {
				b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
					if msg.UUID == "broken" {
						return nil, classify.Permanent(errors.New("broken"))
					}
					return b.whole(msg)
				})
			}
			ids := append(batchOf("good", 60), "broken")
			b.publish(ids...)
			b.account(ids, "broken")
		})
	}
}

// Feature D9: payloads of type JSON are written in each of the driver's modes.
func TestPayloadsOfJSON(t *testing.T) {
	address := postgrestest.Schema(t)
	for _, mode := range []string{"cache_statement", "exec", "cache_describe", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			db := postgrestest.Open(t, address+"&default_query_exec_mode="+mode)
			for kind, schema := range map[string]wsql.SchemaAdapter{
				"json":  wsql.DefaultPostgreSQLSchema{},
				"bytea": &wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "bytea" }},
			} {
				pub := testkit.Must(wmsql.NewPublisher(t.Context(), db, wmsql.PublisherConfig{Schema: schema}))
				topic := strings.ReplaceAll(mode, "_", "-") + "." + kind
				msg := with("1", message.Metadata{"tenant": "blue"}, []byte(`{"order":1}`))
				testkit.NoError(t, errors.Join(pub.InitializeTopics(topic), pub.Publish(topic, msg)))
				var payload, metadata string
				testkit.NoError(t, db.QueryRow(fmt.Sprintf(`SELECT CASE WHEN payload::text LIKE '\\x%%'
					THEN convert_from(payload::text::bytea, 'UTF8') ELSE payload::text END, metadata->>'tenant'
					FROM "watermill_%s"`, topic)).Scan(&payload, &metadata))
				testkit.Check(t, payload == `{"order":1}` && metadata == "blue", "%s: %q, %q", kind, payload, metadata)
			}
		})
	}
}
