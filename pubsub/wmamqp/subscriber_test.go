package wmamqp_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

var kinds = []string{"classic", "quorum"}

func acks(t testing.TB, msg *message.Message) {
	t.Helper()
	if !msg.Ack() {
		t.Errorf("%s cannot be acked", msg.UUID)
	}
}

// Feature D8: headers that are no strings are delivered, and what is behind them; a quorum queue's count too.
func TestForeignHeadersAreDelivered(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			b := newBroker(t)
			topic := b.queue(kind)
			b.send(topic, amqp091.Publishing{Headers: everyType(), MessageId: "foreign"})
			b.send(topic, amqp091.Publishing{MessageId: "plain"})
			messages := b.subscribe(b.subscriber(), topic)
			first := b.next(messages)
			if first.UUID != "foreign" || first.Metadata["int16"] != "-1600" {
				t.Errorf("%s %v", first.UUID, first.Metadata)
			}
			first.Nack()
			var seen []string
			for range 2 { // a quorum queue may deliver the other one first
				msg := b.next(messages)
				seen = append(seen, msg.UUID)
				d, ok := wmamqp.Counts(msg)
				if want := map[string]int{"quorum": 1}[kind]; msg.UUID == "foreign" && (!ok || !d.Redelivered || d.Count != want) {
					t.Errorf("%+v", d)
				}
				acks(t, msg)
			}
			if slices.Sort(seen); !slices.Equal(seen, []string{"foreign", "plain"}) {
				t.Errorf("%q", seen)
			}
			eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
		})
	}
}

// A message that is delivered again is the same to the last byte of its metadata, so that a letter which arrives twice
// is one in the dead-letter store: a quorum queue's count is the delivery's, not the message's.
func TestRedeliveryIsTheSameMessage(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for name, headers := range map[string]amqp091.Table{"foreign": everyType(), "bare": nil} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				b := newBroker(t)
				topic := b.queue(kind)
				b.send(topic, amqp091.Publishing{Headers: headers, MessageId: "m", ContentType: "text/plain"})
				messages := b.subscribe(b.subscriber(), topic)
				first := b.next(messages)
				before := maps.Clone(first.Metadata)
				first.Nack()
				again := b.next(messages)
				if !maps.Equal(before, again.Metadata) {
					t.Errorf("first %v\nagain %v", before, again.Metadata)
				}
				if d, _ := wmamqp.Counts(again); kind == "quorum" && d.Count != 1 {
					t.Errorf("%+v", d)
				}
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
	b.must(func(c *amqp091.Channel) error {
		return c.ExchangeDeclare(topic, "topic", true, false, false, false, nil)
	})
	sub := b.subscriber(func(c *wmamqp.SubscriberConfig) {
		c.AMQP = amqp.NewDurablePubSubConfig(b.uri, amqp.GenerateQueueNameTopicNameWithSuffix("x"))
		c.AMQP.Queue.GenerateName = func(topic string) string { return topic + ".other" }
		c.AMQP.Exchange.Type = "topic"
		c.AMQP.QueueBind.GenerateRoutingKey = func(string) string { return "eu.#" }
	})
	var origin atomic.Pointer[poison.Letter]
	dead := b.publisher()
	if err := dead.InitializeTopics(topic + ".dlq"); err != nil {
		t.Fatal(err)
	}
	b.run(topic, sub, dead, poison.QueueConfig{Hooks: poison.Hooks{OnDeadLetter: func(_ context.Context, l poison.Letter) { origin.Store(&l) }}},
		func(*message.Message) error { return classify.Permanent(errors.New("failed")) })
	b.must(func(c *amqp091.Channel) error {
		return c.Publish(topic, "eu.de", true, false, amqp091.Publishing{MessageId: "m", Timestamp: time.Unix(1700000000, 0)})
	})
	eventually(t, "a letter", func() bool { return origin.Load() != nil })
	want := poison.Origin{
		Topic: topic, Exchange: topic, RoutingKey: "eu.de", ConsumerGroup: topic + ".other", Handler: "billing", MessageID: "m",
		Timestamp: time.Unix(1700000000, 0),
	}
	if got := origin.Load().Origin; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if d := b.get(topic + ".dlq"); d.Headers[poison.KeyOriginalExchange] != topic || d.Headers[poison.KeyOriginalRoutingKey] != "eu.de" {
		t.Errorf("%v", d.Headers)
	}
}

// Bad input: a message from elsewhere has an origin too.
func TestOriginOfOthers(t *testing.T) {
	if got := wmamqp.Origin(nil); !reflect.DeepEqual(got, poison.Origin{}) {
		t.Errorf("%+v", got)
	}
	if got := wmamqp.Origin(&message.Message{UUID: "id"}); !reflect.DeepEqual(got, poison.Origin{MessageID: "id"}) {
		t.Errorf("%+v", got)
	}
}

// Promise P4: a message that is requeued again and again does not spin: the waits double, to their bound; an ack ends
// the row, and Close a wait.
func TestNackBackoff(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue()
	sub := b.subscriber(func(c *wmamqp.SubscriberConfig) {
		*wmamqp.NackBackoff(c), *wmamqp.MaxNackBackoff(c) = 40*time.Millisecond, 100*time.Millisecond
	})
	b.send(topic, amqp091.Publishing{MessageId: "m"})
	messages := b.subscribe(sub, topic)
	msg := b.next(messages)
	for i, least := range []time.Duration{40, 80, 100, 100} {
		last := time.Now()
		msg.Nack()
		msg = b.next(messages)
		if d := time.Since(last); d < least*time.Millisecond {
			t.Errorf("nack %d came back after %s", i, d)
		}
	}
	acks(t, msg)

	slow := b.subscriber(func(c *wmamqp.SubscriberConfig) {
		*wmamqp.NackBackoff(c), *wmamqp.MaxNackBackoff(c) = time.Hour, time.Hour
	})
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	b.send(topic, amqp091.Publishing{MessageId: "m"})
	b.next(b.subscribe(slow, topic)).Nack()
	testkit.Within(t, "Close within the wait of an hour", func() { b.closed("the subscriber", slow.Close()) })
	eventually(t, "the message is back", func() bool { return b.ready(topic) == 1 })
}

// Feature D5: a queue with other arguments is consumed as it is: a dead-letter queue is a quorum queue, whatever the
// live one is.
func TestQueueWithOtherArguments(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue("quorum")
	sub := b.subscriber()
	if err := sub.Declare(topic); err != nil {
		t.Fatal(err)
	}
	b.send(topic, amqp091.Publishing{MessageId: "m"})
	acks(t, b.next(b.subscribe(sub, topic)))
	fresh := b.topic()
	if err := sub.Declare(fresh); err != nil || b.ready(fresh) != 0 {
		t.Error(err)
	}
	_, err := sub.Subscribe(context.Background(), "amq.forbidden")
	says(t, err, "amq.forbidden")
}

// Feature V1: the backlog is what is ready; a queue that is missing is an error that names it.
func TestBacklog(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, sub := b.queue(), b.subscriber()
	for i := range 3 {
		b.send(topic, amqp091.Publishing{MessageId: fmt.Sprint(i)})
	}
	if n, err := sub.Backlog(context.Background(), topic); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err := sub.Backlog(context.Background(), topic+"-missing")
	says(t, err, topic+"-missing", "404")
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = sub.Backlog(context.Background(), topic)
	says(t, err, "closed")
}

// Promise P1: a configuration that could lose a message is an error at construction.
func TestSubscriberConfigRefusals(t *testing.T) {
	for want, change := range map[string]func(*wmamqp.SubscriberConfig){
		"NoRequeueOnNack": func(c *wmamqp.SubscriberConfig) { c.AMQP.Consume.NoRequeueOnNack = true },
		"InFlight is -1":  func(c *wmamqp.SubscriberConfig) { c.InFlight = -1 },
		"InFlight is 101": func(c *wmamqp.SubscriberConfig) { c.InFlight = 101 },
		"PrefetchCount 2": func(c *wmamqp.SubscriberConfig) { c.InFlight, c.AMQP.Consume.Qos.PrefetchCount = 2, 2 },
		"Exclusive":       func(c *wmamqp.SubscriberConfig) { c.InFlight, c.AMQP.Consume.Exclusive = 2, true },
		"AmqpURI":         func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpURI = "amqp://other/" },
	} {
		var config wmamqp.SubscriberConfig
		change(&config)
		_, err := wmamqp.NewSubscriber("amqp://127.0.0.1:1/", config)
		says(t, err, want)
	}
	_, err := wmamqp.NewSubscriber("", wmamqp.SubscriberConfig{})
	says(t, err, "URI is empty")
}
