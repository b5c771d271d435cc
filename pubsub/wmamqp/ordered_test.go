package wmamqp_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// ordered runs a handler with Config.Ordered. standsBy is how long what is parked is due before an idle consumer drains
// it.
func (b *broker) ordered(topic string, db *sql.DB, delay, standsBy time.Duration, handle func(id string) error) (stop func()) {
	b.Helper()
	config := spillway.Config{Service: "shop", DB: db, Logger: watermill.NopLogger{},
		Ordered: &spillway.OrderedConfig{Delays: []time.Duration{delay, delay, delay, delay}}}
	config.Queue.Origin = wmamqp.Origin
	channel := testkit.Must(spillway.New(b.Context(), config))
	sub := b.subscriber(keyed(4), patient, func(c *wmamqp.SubscriberConfig) { *wmamqp.StandsBy(c) = standsBy })
	return testkit.RunRouter(b, watermill.NopLogger{}, func(router *message.Router) {
		channel.Attach(router)
		router.AddConsumerHandler("billing", topic, sub, func(msg *message.Message) error { return handle(msg.UUID) })
	})
}

func parked(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	testkit.NoError(t, db.QueryRow(`SELECT count(*) FROM spillway_parked`).Scan(&n))
	return n
}

var errDown = errors.New("connection refused")

// Feature R13: what a consumer parked and left is found by the next one: in an idle queue by one that stands by, and
// otherwise with the first message, before that is handled.
func TestOrderedGoesOnWithTheNextConsumer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		standsBy time.Duration
		more     string
	}{"idle": {300 * time.Millisecond, ""}, "first message": {time.Hour, "k0-02"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, db := newBroker(t), databases.Postgres.New(t)
			topic := b.topic()
			b.declareWith(topic, singleActive)
			b.sequences(topic, 1, 2)
			stop := b.ordered(topic, db, 300*time.Millisecond, time.Hour, func(string) error { return errDown })
			eventually(t, "both are parked, and acked", func() bool { return parked(t, db) == 2 && b.ready(topic) == 0 })
			stop()
			want := []string{"k0-00", "k0-01"}
			if row.more != "" {
				want = append(want, row.more)
				b.send(topic, amqp091.Publishing{MessageId: row.more})
			}
			var seen list
			b.ordered(topic, db, time.Millisecond, row.standsBy, func(id string) error { seen.add(id); return nil })
			eventually(t, "all are handled, and nothing is parked", func() bool { return len(seen.get()) >= len(want) && parked(t, db) == 0 })
			got := seen.get()
			testkit.Check(t, strings.Join(got, " ") == strings.Join(want, " "), "handled %v, want %v", got, want)
		})
	}
}

// Feature R13: a message that was parked and comes again, as after a crash before its ack, is acked and not parked twice.
// One that is redriven is another one. Messages without a key wait for none.
func TestOrderedParksOnce(t *testing.T) {
	t.Parallel()
	b, db := newBroker(t), databases.Postgres.New(t)
	topic := b.topic()
	b.declareWith(topic, singleActive)
	var seen list
	b.ordered(topic, db, time.Hour, time.Hour, func(id string) error { seen.add(id); return errDown })
	for _, headers := range []amqp091.Table{nil, nil, {"x-redrive-count": "1"}} {
		b.send(topic, amqp091.Publishing{MessageId: "k0-00", Headers: headers})
	}
	for n := range 2 {
		b.send(topic, amqp091.Publishing{MessageId: fmt.Sprint("-", n)})
	}
	eventually(t, "all are acked", func() bool { return len(seen.get()) == 3 && parked(t, db) == 4 && b.ready(topic) == 0 })
	lanes := 0
	err := db.QueryRow(`SELECT count(DISTINCT lane) FROM spillway_parked`).Scan(&lanes)
	testkit.Check(t, err == nil && lanes == 3, "%d sequences: %v", lanes, err)
}
