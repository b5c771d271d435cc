package wmsql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Promise P1, feature D9: behind a pooler in transaction mode, with each remedy that the start names, every message is
// handled once in one transaction with its key and its output, and a broken one is a letter. Two instances share few
// sessions.
func TestPooler(t *testing.T) {
	for _, mode := range []string{"exec", "cache_describe", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			address := services.PgBouncer(t, postgrestest.Schema(t), "pool_mode = transaction", "default_pool_size = 8") + "&default_query_exec_mode=" + mode
			b := newBench(t, func(t testing.TB) *sql.DB { return postgrestest.Open(t, address) })
			const n = 60
			for range 2 {
				b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
					if msg.UUID == "broken" {
						return nil, classify.Permanent(errors.New("broken"))
					}
					return message.Messages{message.NewMessage("out-"+msg.UUID, nil)}, b.write(msg, "handled")
				})
			}
			b.publish(append(batchOf("good", n), "broken")...)
			b.drained()
			for id, steps := range b.effects() {
				if len(steps) != 1 {
					t.Errorf("%s: %v", id, steps)
				}
			}
			if got, outs, letters := len(b.effects()), b.backlog(b.outs, "none"), b.backlog(b.topic+".dlq", "none"); got != n || outs != n || letters != 1 {
				t.Errorf("%d handled, %d outputs, %d letters", got, outs, letters)
			}
		})
	}
}

// Feature D9: payloads of type JSON, which watermill-sql's schema has by default, are written in each of the driver's
// modes.
func TestPayloadsOfJSON(t *testing.T) {
	address := postgrestest.Schema(t)
	for _, mode := range []string{"cache_statement", "exec", "cache_describe", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			db := postgrestest.Open(t, address+"&default_query_exec_mode="+mode)
			for kind, schema := range map[string]wsql.SchemaAdapter{
				"json":  wsql.DefaultPostgreSQLSchema{},
				"bytea": &wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "bytea" }},
			} {
				pub, err := wmsql.NewPublisher(t.Context(), db, wmsql.PublisherConfig{Schema: schema})
				if err != nil {
					t.Fatal(err)
				}
				topic := strings.ReplaceAll(mode, "_", "-") + "." + kind
				msg := message.NewMessage("1", []byte(`{"order":1}`))
				msg.Metadata.Set("tenant", "blue")
				if err := errors.Join(pub.InitializeTopics(topic), pub.Publish(topic, msg)); err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				var payload, metadata string
				err = db.QueryRow(fmt.Sprintf(`SELECT CASE WHEN payload::text LIKE '\\x%%' THEN convert_from(payload::text::bytea, 'UTF8') ELSE payload::text END, metadata->>'tenant' FROM "watermill_%s"`, topic)).
					Scan(&payload, &metadata)
				if err != nil || payload != `{"order":1}` || metadata != "blue" {
					t.Errorf("%s: %q, %q, %v", kind, payload, metadata, err)
				}
			}
		})
	}
}
