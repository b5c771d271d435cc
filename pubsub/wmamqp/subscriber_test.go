package wmamqp_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/draining"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

var kinds = []string{"classic", "quorum"}

// onKinds runs a test with a queue of each kind.
func onKinds(t *testing.T, test func(t *testing.T, b *broker, kind string)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newBroker(t), kind)
		})
	}
}

func acks(t testing.TB, msg *message.Message) {
	t.Helper()
	testkit.Check(t, msg.Ack(), "%s cannot be acked", msg.UUID)
}

// Feature D8: headers that are no strings are delivered, and a quorum queue's count.
func TestRedeliveryIsTheSameMessage(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for name, headers := range map[string]amqp091.Table{"foreign": everyType(), "bare": nil} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.queue(kind)
				b.send(topic, amqp091.Publishing{Headers: headers, MessageId: "m", ContentType: "text/plain"})
				messages := b.subscribe(b.subscriber(), topic)
				first := b.next(messages)
				before := maps.Clone(first.Metadata)
				first.Nack()
				again := b.next(messages)
				testkit.Check(t, maps.Equal(before, again.Metadata), "first %v\nagain %v", before, again.Metadata)
				d, _ := wmamqp.Counts(again)
				testkit.Check(t, d.Redelivered && d.Count == b2i(kind == "quorum" && !b.atLeast(4, 3)), "%+v", d)
				testkit.Check(t, headers == nil || again.Metadata["int16"] == "-1600", "%v", again.Metadata)
				acks(t, again)
			})
		}
	}
}

// Feature D1: the origin says which queue, exchange and routing key a message came by, and when it was sent.
func TestOrigin(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic()
	messages := b.subscribe(b.subscriber(func(c *wmamqp.SubscriberConfig) {
		c.AMQP = amqp.NewDurablePubSubConfig(b.uri, func(topic string) string { return topic + ".other" })
		c.AMQP.Exchange.Type = "topic"
		c.AMQP.QueueBind.GenerateRoutingKey = func(string) string { return "eu.#" }
	}), topic)
	at := time.Unix(1700000000, 0)
	b.must(func(c *amqp091.Channel) error {
		return c.Publish(topic, "eu.de", true, false, amqp091.Publishing{MessageId: "m", Timestamp: at})
	})
	for msg, want := range map[*message.Message]poison.Origin{
		b.next(messages): {
			Exchange: topic, RoutingKey: "eu.de", ConsumerGroup: topic + ".other", MessageID: "m", Timestamp: at,
		},
		nil:          {},
		{UUID: "id"}: {MessageID: "id"},
	} {
		got := wmamqp.Origin(msg)
		testkit.Check(t, reflect.DeepEqual(got, want), "%+v, not %+v", got, want)
	}
}

// Feature D5: a queue with other arguments is consumed as it is: a dead-letter queue is a quorum queue, whatever the
// live one is.
func TestQueueWithOtherArguments(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue("quorum")
	sub := b.subscriber()
	testkit.NoError(t, sub.Declare(topic))
	b.send(topic, amqp091.Publishing{MessageId: "m"})
	acks(t, b.next(b.subscribe(sub, topic)))
	fresh := b.topic()
	if err := sub.Declare(fresh); err != nil || b.ready(fresh) != 0 {
		t.Error(err)
	}
	_, err := sub.Subscribe(context.Background(), "amq.forbidden")
	says(t, err, "amq.forbidden")
}

// Feature V5: a dry run of a drain takes nothing from a queue, and a drain that was cut off goes on with what is in it.
func TestDraining(t *testing.T) {
	t.Parallel()
	onKinds(t, func(t *testing.T, b *broker, kind string) {
		topic := b.topic(".dlq.quarantine")
		b.declare(topic, kind)
		b.declare(topic+".dlq", kind)
		draining.Test(t, draining.Broker{
			Topic: topic, Publisher: b.publisher(),
			Subscriber: func() draining.Subscriber { return b.subscriber() },
			InDoubt:    1,
		})
	})
}

// Feature V1: the backlog is what is ready. Browse leaves messages in their order.
func TestBrowse(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	queue := b.queue()
	ids, sub := b.numbered(queue, 4), b.subscriber()
	allBack := func() {
		eventually(t, "all are back", func() bool { return testkit.Must(sub.Backlog(t.Context(), queue)) == 4 })
	}
	for range 2 {
		var seen []string
		err := sub.Browse(t.Context(), queue, func(msg *message.Message) bool {
			seen = append(seen, msg.UUID)
			return len(seen) < 3
		})
		testkit.Require(t, err == nil && slices.Equal(seen, ids[:3]), "%v %v", seen, err)
		allBack()
	}
	missing := queue + "-missing"
	says(t, sub.Browse(t.Context(), missing, func(*message.Message) bool { return true }), missing)
	says(t, testkit.Err(sub.Backlog(t.Context(), missing)), missing, "404")
	ctx, cancel := context.WithCancel(t.Context())
	testkit.Is(t, sub.Browse(ctx, queue, func(*message.Message) bool { cancel(); return true }), context.Canceled)
	allBack()
	b.closed("the subscriber", sub.Close())
	says(t, testkit.Err(sub.Backlog(t.Context(), queue)), "closed")
}

// Feature D5, promise P1, decision 14: a queue that confirms letters and loses them later is refused at start-up,
// whatever else it has; the error names the queue, the argument and what to do. AllowLossyTopics takes it.
func TestInitializeRefusesLossyQueues(t *testing.T) {
	t.Parallel()
	type table = amqp091.Table
	const quorum, classic = "quorum", "classic"
	for name, row := range map[string]struct {
		arguments table
		transient bool
		says      string // empty: it is taken
		long      bool
	}{
		"length":         {arguments: table{"x-max-length": 3}, says: "x-max-length 3"},
		"length, quorum": {arguments: table{"x-queue-type": quorum, "x-max-length": int64(3)}, says: "x-max-length 3"},
		"expiry":         {arguments: table{"x-message-ttl": 600000}, says: "x-message-ttl 600000"},
		"expiry, quorum": {arguments: table{"x-queue-type": quorum, "x-message-ttl": 600000}, says: "x-message-ttl 600000"},
		"unused":         {arguments: table{"x-expires": 600000}, says: "x-expires 600000"},
		"delivery limit": {arguments: table{"x-queue-type": quorum, "x-delivery-limit": 4, "x-max-in-memory-length": 5}, says: "x-delivery-limit 4"},
		"behind others":  {arguments: table{"x-queue-type": classic, "x-max-length": 3, "x-overflow": "reject-publish", "x-dead-letter-exchange": "a'b", "x-queue-mode": "lazy", "x-message-ttl": 7}, says: "x-message-ttl 7"},
		"transient":      {transient: true, says: "durable false"},
		"long name":      {arguments: table{"x-max-length": 3}, says: "x-max-length", long: true},
		"rejects":        {arguments: table{"x-max-length": 3, "x-overflow": "reject-publish", "x-single-active-consumer": true}},
		"routes on":      {arguments: table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "' but current is none", "x-max-priority": 3}},
		"another type":   {arguments: table{"x-queue-mode": "lazy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			suffix := ""
			if row.long {
				suffix = strings.Repeat("n", 180)
			}
			queue := b.topic(suffix) + suffix
			declare := func(c *amqp091.Channel) error {
				_, err := c.QueueDeclare(queue, !row.transient, false, false, false, row.arguments)
				return err
			}
			b.must(declare)
			err := b.publisher().InitializeTopics(queue)
			testkit.Require(t, row.says != "" || err == nil, "%v", err)
			if row.says != "" {
				says(t, err, queue, row.says, "delete it", "AllowLossyTopics")
			}
			if err := b.publisher(func(c *wmamqp.PublisherConfig) { c.AllowLossyTopics = true }).InitializeTopics(queue); err != nil {
				t.Errorf("allowed: %v", err)
			}
			b.must(declare) // asking has changed nothing
		})
	}
}

// vanish takes the consumers of a quorum queue away within the broker, as a cluster does that was cut: their channels
// stay open.
func vanish(t *testing.T, queue string) {
	t.Helper()
	services.RabbitMQCtl(t, "eval", fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)),
[ra:process_command(amqqueue:get_pid(Q), rabbit_fifo:make_checkout({element(2, C), element(1, C)}, cancel, #{}))
 || C <- rabbit_amqqueue:consumers(Q)].`, queue))
}

// A queue whose consumers the broker has lost, and said nothing, is consumed again: nothing stands still for ever.
func TestConsumersVanish(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wmamqp.SubscriberConfig){
		"one at a time": func(*wmamqp.SubscriberConfig) {},
		"in flight":     inFlight(3),
		"lanes": func(c *wmamqp.SubscriberConfig) {
			c.InFlight, c.Key = 3, func(msg *message.Message) string { return msg.UUID }
			c.AMQP.Queue.Arguments = amqp091.Table{amqp091.SingleActiveConsumerArg: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			logger, queue := &testkit.Log{}, b.topic()
			messages := b.subscribe(b.subscriber(change, func(c *wmamqp.SubscriberConfig) {
				c.AMQP.Queue.Arguments = wmamqp.QuorumQueue(c.AMQP.Queue.Arguments)
				if b.atLeast(4, 0) {
					c.AMQP.Queue.Arguments["x-delivery-limit"] = int32(-1)
				}
				c.Logger, *wmamqp.ConsumersLook(c) = logger, 200*time.Millisecond
			}), queue)
			b.send(queue, amqp091.Publishing{Body: []byte("m")})
			b.next(messages).Ack()
			vanish(t, queue)
			b.send(queue, amqp091.Publishing{Body: []byte("m")})
			b.next(messages).Ack()
			n := len(logger.Lines(watermill.ErrorLogLevel, "The broker has no consumer of the queue"))
			testkit.Check(t, n == 1, "%d lines", n)
		})
	}
}
