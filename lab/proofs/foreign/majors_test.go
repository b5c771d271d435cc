package foreign_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	amqp3 "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	sql3 "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	sql4 "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// The newest major versions of the adapters' modules are known as those that the adapters import.
func TestFactMajors(t *testing.T) {
	deadline := 7 * time.Second
	shelf := testkit.Must(sql4.NewSubscriber(sql4.BeginnerFromStdSQL(new(sql.DB)), sql4.SubscriberConfig{
		AckDeadline: &deadline, SchemaAdapter: sql4.DefaultPostgreSQLSchema{}, OffsetsAdapter: sql4.DefaultPostgreSQLOffsetsAdapter{},
	}, nil))
	for row, c := range map[string]struct {
		sub  any
		want hold.Subscriber
	}{
		"github.com/ThreeDotsLabs/watermill-amqp/pkg/amqp.Subscriber": {&amqp3.Subscriber{}, hold.Subscriber{After: 30 * time.Minute, Session: true}},
		"github.com/ThreeDotsLabs/watermill-sql/pkg/sql.Subscriber":   {shelf, hold.Subscriber{After: deadline, Transaction: true}},
	} {
		got := hold.SubscriberOf(reflect.ValueOf(c.sub).Elem())
		met(t, row, got != nil && *got == c.want)
	}
}

// pair is a pub/sub of a module's newest major version.
type pair struct {
	pub message.Publisher
	sub func(t *testing.T) message.Subscriber
}

func ofAMQP(t *testing.T) *pair {
	config := amqp3.NewDurableQueueConfig(services.AMQP(t))
	config.Marshaler = wmamqp.Marshaler{} // the module's own cannot read what RabbitMQ adds to a redelivery
	config.Queue.Arguments = amqp091.Table{"x-queue-type": "quorum"}
	config.Publish.ConfirmDelivery = true
	return &pair{closed(t, testkit.Must(amqp3.NewPublisher(config, watermill.NopLogger{}))), func(t *testing.T) message.Subscriber {
		return closed(t, testkit.Must(amqp3.NewSubscriber(config, watermill.NopLogger{})))
	}}
}

// ofSQL is of the group "billing", and reads message by message.
func ofSQL(t *testing.T, db *sql.DB, payloads string) *pair {
	schema := sql4.DefaultPostgreSQLSchema{SubscribeBatchSize: 1, GeneratePayloadType: func(string) string { return payloads }}
	at := sql4.BeginnerFromStdSQL(db)
	pub := testkit.Must(sql4.NewPublisher(at, sql4.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, nil))
	return &pair{closed(t, pub), func(t *testing.T) message.Subscriber {
		return closed(t, testkit.Must(sql4.NewSubscriber(at, sql4.SubscriberConfig{ConsumerGroup: "billing", SchemaAdapter: schema,
			OffsetsAdapter: sql4.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true, PollInterval: 10 * time.Millisecond}, nil)))
	}}
}

func closed[T interface{ Close() error }](t *testing.T, it T) T {
	t.Cleanup(func() { testkit.NoError(t, it.Close()) })
	return it
}

// Feature D1, promise P1: beside Attach the newest major versions handle, try again and dead-letter as those that the
// adapters import, a message that was nacked comes again once, and nothing of them is unknown.
func TestMajorsAttached(t *testing.T) {
	for name, of := range map[string]func(*testing.T) *pair{
		"watermill-amqp/v3": ofAMQP,
		"watermill-sql/v4":  func(t *testing.T) *pair { return ofSQL(t, databases.Postgres.New(t), "BYTEA") },
	} {
		t.Run(name, func(t *testing.T) {
			log, ps, topic := &testkit.Log{}, of(t), "orders-"+rand.Text()[:12]
			dead := testkit.Must(ps.sub(t).Subscribe(t.Context(), topic+".dlq"))
			messages := testkit.Must(ps.sub(t).Subscribe(t.Context(), topic+".alone"))
			testkit.NoError(t, ps.pub.Publish(topic+".alone", message.NewMessage("nacked", []byte("{}"))))
			testkit.Receive(t, "a message", messages).Nack()
			again := testkit.Receive(t, "it again", messages)
			testkit.Equal(t, "after a nack", again.UUID, "nacked")
			again.Ack()

			handled := make(chan string, 9)
			channel := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: ps.pub, Logger: log}))
			failed := false
			testkit.RunRouter(t, log, func(router *message.Router) {
				channel.Attach(router)
				router.AddConsumerHandler("billing", topic, ps.sub(t), func(msg *message.Message) error {
					switch {
					case msg.UUID == "poison":
						return classify.Permanent(errors.New("no such customer"))
					case msg.UUID == "flaky" && !failed:
						failed = true
						return errors.New("not now")
					}
					handled <- msg.UUID
					return nil
				})
			})
			for _, id := range []string{"poison", "flaky", "last"} {
				testkit.NoError(t, ps.pub.Publish(topic, message.NewMessage(id, []byte("{}"))))
			}
			letter := testkit.Receive(t, "a letter", dead)
			letter.Ack()
			testkit.Equal(t, "dead-lettered", letter.UUID, "poison")
			testkit.Equal(t, "handled", testkit.Receive(t, "a message", handled), "flaky")
			testkit.Equal(t, "handled", testkit.Receive(t, "a message", handled), "last")
			for _, row := range []string{"amqp/pkg/amqp", "sql/pkg/sql"} {
				of := "github.com/ThreeDotsLabs/watermill-" + row + ".Subscriber"
				testkit.Check(t, !log.Has("not as the library knows it", "of", of), "%s is unknown", of)
			}
		})
	}
}

// Feature D16, promise P1: wmsql and watermill-sql/v4 publish into one table and consume as one group, whichever made the
// tables: each goes on where the other one was.
func TestMajorsShareATable(t *testing.T) {
	for _, payloads := range []string{"JSON", "BYTEA"} {
		for _, first := range []string{"v4", "wmsql"} {
			t.Run(payloads+" by "+first, func(t *testing.T) {
				db, ctx := databases.Postgres.New(t), t.Context()
				schema := sql3.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return payloads }}
				newest := ofSQL(t, db, payloads)
				ours := &pair{closed(t, testkit.Must(wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{Schema: schema}))),
					func(t *testing.T) message.Subscriber {
						return closed(t, testkit.Must(wmsql.NewSubscriber(ctx, db, wmsql.SubscriberConfig{ConsumerGroup: "billing", Schema: schema})))
					}}
				turns := []*pair{newest, ours}
				if first == "wmsql" {
					turns = []*pair{ours, newest}
					testkit.NoError(t, ours.pub.(*wmsql.Publisher).InitializeTopics("orders"))
				}
				ids := []string{"1", "2", "3", "4", "5", "6"}
				for i, id := range ids {
					testkit.NoError(t, turns[i%2].pub.Publish("orders", message.NewMessage(id, []byte(`{"id": "`+id+`"}`))))
				}
				for i, id := range ids { // two by the one, two by the other one, and two again
					sub := turns[i/2%2].sub(t)
					msg := testkit.Receive(t, "a message", testkit.Must(sub.Subscribe(ctx, "orders")))
					testkit.Equal(t, "the next one", msg.UUID+" "+string(msg.Payload), id+` {"id": "`+id+`"}`)
					msg.Ack()
					testkit.Eventually(t, "its position is kept", func() bool { // v4's Close just after an ack may undo it
						return i/2%2 == slices.Index(turns, ours) || databases.Text(t, db, `SELECT coalesce(max(offset_acked), 0) FROM watermill_offsets_orders`) == id
					})
					testkit.NoError(t, sub.Close())
				}
				err := newest.pub.Publish("orders", message.NewMessage("binary", []byte{0xff}))
				testkit.Check(t, (err != nil) == (payloads == "JSON"), "bytes that are no JSON: %v", err)
			})
		}
	}
}
