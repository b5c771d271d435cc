package wmamqp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/redrive"
)

// graveyard declares a queue with a dead-letter exchange, as they were before Spillway, and the queue behind that.
func (b *broker) graveyard(arguments amqp091.Table) (topic, dead string) {
	b.Helper()
	topic = b.topic(".dlx", ".graveyard", ".graveyard.parked", ".graveyard.quarantine")
	dead = topic + ".graveyard"
	arguments["x-dead-letter-exchange"] = topic + ".dlx"
	b.must(func(c *amqp091.Channel) error {
		if err := c.ExchangeDeclare(topic+".dlx", "fanout", true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := c.QueueDeclare(dead, true, false, false, false, nil); err != nil {
			return err
		}
		return c.QueueBind(dead, "", topic+".dlx", false, nil)
	})
	b.declareWith(topic, arguments)
	return topic, dead
}

// refuse has a consumer refuse the next message of a queue.
func (b *broker) refuse(queue string, requeue bool) {
	b.Helper()
	eventually(b, "a message to refuse", func() (ok bool) {
		b.must(func(c *amqp091.Channel) error {
			d, found, err := c.Get(queue, false)
			if ok = found; err != nil || !found {
				return err
			}
			return d.Reject(requeue) // RabbitMQ 4.3 does not count a nack
		})
		return ok
	})
}

// drain drains dead letters to the queues of the allow-list.
func (b *broker) drain(dead string, allow ...string) redrive.Report {
	b.Helper()
	pub, sub := b.publisher(), b.subscriber()
	return testkit.Must(redrive.DrainTopic(b.Context(), sub, pub, redrive.DrainTopicConfig{
		Rules: redrive.Rules{Allow: allow, By: "ada"}, Park: pub, Topic: dead, Backlog: sub.Backlog,
	}))
}

// Features D7, V1, V4, on RabbitMQ: letters that a dead-letter exchange made tell queue, exchange, routing key, reason,
// count and time, and are drained to the queue that they first died in, with the headers and properties that their
// producer gave.
func TestDeathsAreRedriven(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for reason, row := range map[string]struct {
		arguments amqp091.Table
		die       func(topic string)
		attempts  int
	}{
		"rejected": {amqp091.Table{}, func(topic string) { b.refuse(topic, false) }, 1},
		"expired":  {amqp091.Table{}, func(string) {}, 0},
		"maxlen": {amqp091.Table{"x-max-length": int32(1)}, func(topic string) {
			b.send(topic, amqp091.Publishing{MessageId: "next"})
			b.get(topic)
		}, 0},
		"delivery_limit": {amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-delivery-limit": int32(1)},
			func(topic string) { b.refuse(topic, true); b.refuse(topic, true) }, 0},
	} {
		topic, dead := b.graveyard(row.arguments)
		begun := time.Now().Truncate(time.Second)
		sent := amqp091.Publishing{MessageId: "m", Type: "order.placed", Body: []byte("body"),
			Headers: amqp091.Table{"n": int32(7), "tenant": "acme"}}
		if reason == "expired" {
			sent.Expiration = "1"
		}
		b.send(topic, sent)
		row.die(topic)
		d := b.get(dead)
		l := testkit.Must(poison.Decode(read(t, wmamqp.Marshaler{}, d)))
		o := l.Origin
		testkit.Require(t, o.Topic == topic && o.ConsumerGroup == topic && o.Exchange == "" && o.RoutingKey == topic,
			"%s: %+v", reason, o)
		f := l.Failure
		testkit.Check(t, f.Reason == reason && f.Attempts == row.attempts && !f.FirstFailedAt.Before(begun) &&
			f.LastFailedAt.Equal(f.FirstFailedAt), "%s: %+v", reason, f)
		b.send(dead, amqp091.Publishing{MessageId: d.MessageId, Type: d.Type, Headers: d.Headers, Body: d.Body})
		report := b.drain(dead, topic)
		testkit.Require(t, report.Redriven == 1 && report.Taken == 1, "%s: %+v", reason, report)
		back := b.get(topic)
		testkit.Check(t, back.MessageId == "m" && back.Type == "order.placed" && string(back.Body) == "body" &&
			back.Headers["n"] == int32(7) && back.Headers["tenant"] == "acme", "%s: came back as %+v", reason, back)
		for name := range back.Headers {
			testkit.Check(t, name != "x-death" && !strings.HasPrefix(name, "x-first-"),
				"%s: came back with %s", reason, name)
		}
	}
}

// Feature V2, on RabbitMQ: a producer can write deaths before the message dies.
func TestForgedDeaths(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, dead := b.graveyard(amqp091.Table{})
	forged := amqp091.Table{"count": int64(9), "queue": "payments", "reason": "rejected", "exchange": "bank",
		"routing-keys": []any{"p"}, "time": time.Unix(1, 0)}
	ours := amqp091.Table{"queue": topic, "reason": "rejected", "count": int64(41)}
	for _, deaths := range []any{[]any{forged}, "payments", []any{ours, forged}} {
		b.send(topic, amqp091.Publishing{Headers: amqp091.Table{
			"x-death": deaths, "x-first-death-queue": "payments", "x-first-death-reason": "rejected",
		}})
		b.refuse(topic, false)
		l := testkit.Must(poison.Decode(read(t, wmamqp.Marshaler{}, b.get(dead))))
		if l.Origin.Topic != topic || len(l.Original.Metadata) > 1 { // the types of the headers
			t.Errorf("%v is read as %+v of %q", deaths, l.Origin, l.Original.Metadata)
		}
	}
	b.send(dead, amqp091.Publishing{Headers: amqp091.Table{"x-death": []any{forged}}}) // past the live queue
	report := b.drain(dead, topic)
	testkit.Require(t, report.Refused == 1 && report.Redriven == 0 && b.ready(topic) == 0, "%+v", report)
	parked := b.get(dead + ".parked")
	if l := testkit.Must(poison.Decode(read(t, wmamqp.Marshaler{}, parked))); l.Origin.Topic != "payments" {
		t.Errorf("parked as %+v: %v", l.Origin, parked.Headers)
	}
}

// unlimited are arguments that RabbitMQ knows from version 4 on.
var unlimited = amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-delivery-limit": int32(-1)}

// isOld reports whether the broker is RabbitMQ 3.
func (b *broker) isOld() bool { return !b.atLeast(4, 0) }

func (b *broker) declareWith(name string, arguments amqp091.Table) {
	b.Helper()
	b.must(func(c *amqp091.Channel) error {
		_, err := c.QueueDeclare(name, true, false, false, false, arguments)
		return err
	})
}

// Fact, feature D16: RabbitMQ 3 accepts x-delivery-limit -1 and drops a message when it is requeued for the first
// time. RabbitMQ 4 keeps it.
func TestFactNegativeDeliveryLimit(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	name := b.topic()
	b.declareWith(name, unlimited)
	b.send(name, amqp091.Publishing{MessageId: "returned"})
	b.send(name, amqp091.Publishing{MessageId: "behind it"})
	b.refuse(name, true)
	want := 2
	if b.isOld() {
		want = 1
	}
	eventually(t, "the messages that are left", func() bool { return b.ready(name) == want })
}

// Feature D10: a count that a producer forged is no more than what the queue counts beside it. One on a first delivery is
// none.
func TestForgedCount(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue("quorum")
	b.send(topic, amqp091.Publishing{MessageId: "m", Headers: amqp091.Table{"x-delivery-count": int64(99), "x-acquired-count": int64(99)}})
	messages := b.subscribe(b.subscriber(inFlight(1)), topic)
	for i := range 4 {
		msg := b.next(messages)
		n, _ := wmamqp.DeliveryCount(msg)
		testkit.Check(t, n <= i, "delivery %d is counted %d times", i+1, n)
		msg.Nack()
	}
	acks(t, b.next(messages))
}

// Feature D16, promise P1: where x-delivery-limit -1 drops messages it is refused: as an argument of a source queue or
// of a dead-letter queue, and on such queues that are there. Where it means no limit it is taken.
func TestNegativeDeliveryLimit(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	wants := func(err error, words ...string) {
		t.Helper()
		if b.isOld() {
			says(t, err, append(words, "x-delivery-limit -1")...)
		} else if err != nil {
			t.Error(err)
		}
	}
	queue := func(arguments amqp091.Table) string {
		name := b.topic()
		if arguments != nil {
			b.declareWith(name, arguments)
		}
		return name
	}
	for _, row := range map[string]struct{ given, there amqp091.Table }{
		"given":            {given: unlimited},
		"given and there":  {given: unlimited, there: unlimited},
		"there":            {given: wmamqp.QuorumQueue(nil), there: unlimited},
		"as a larger type": {given: wmamqp.QuorumQueue(amqp091.Table{"x-delivery-limit": int64(-1)})},
	} {
		source := b.subscriber(func(c *wmamqp.SubscriberConfig) { c.AMQP.Queue.Arguments = row.given })
		topic := queue(row.there)
		wants(testkit.Err(source.Subscribe(t.Context(), topic)), "requeued for the first time", "leave the argument out")
		wants(source.Declare(topic), "delete the queue")
		dead := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Queue.Arguments = row.given })
		wants(dead.InitializeTopics(queue(row.there)), "loses letters", "requeued for the first time")
		dead = b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Queue.Arguments, c.AllowLossyTopics = row.given, true })
		testkit.NoError(t, dead.InitializeTopics(queue(row.there)))
	}
}

// Feature D10: what a quorum queue counts of other processes counts from the second delivery on.
func TestDeliveryCount(t *testing.T) {
	t.Parallel()
	if n, ok := wmamqp.DeliveryCount(message.NewMessage("m", nil)); n != 0 || ok {
		t.Errorf("of another: %d, %v", n, ok)
	}
	for kind, counted := range map[string]int{"quorum": 1, "classic": 0} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic, want := b.queue(kind), counted
			if b.atLeast(4, 3) { // where a nack does not count
				want = 0
			}
			forged := amqp091.Table{}
			if kind == "quorum" && !b.atLeast(4, 3) { // which lets it stand, see TestForgedCount
				forged["x-delivery-count"] = int64(99)
			}
			b.send(topic, amqp091.Publishing{MessageId: "m", Headers: forged})
			other := b.subscriber(func(c *wmamqp.SubscriberConfig) { *wmamqp.SettleGrace(c) = time.Millisecond })
			if n, ok := wmamqp.DeliveryCount(b.next(b.subscribe(other, topic))); n != 0 || !ok {
				t.Errorf("first delivery: %d, %v", n, ok)
			}
			b.closed("the subscriber", other.Close())
			messages := b.subscribe(b.subscriber(inFlight(1)), topic)
			const requeued = 5
			for i := range requeued + 1 {
				msg := b.next(messages)
				d, _ := wmamqp.Counts(msg)
				n, ok := wmamqp.DeliveryCount(msg)
				testkit.Require(t, n == want && ok && d.Count == want*(i+1) && d.Requeued == want*i,
					"delivery %d: %d, %v of %+v, want %d", i+2, n, ok, d, want)
				if i == requeued {
					msg.Ack()
				} else {
					msg.Nack()
				}
			}
			b.send(topic, amqp091.Publishing{MessageId: "m"})
			again := b.next(messages)
			if d, _ := wmamqp.Counts(again); d.Count != 0 || d.Requeued != 0 {
				t.Errorf("a new message with the same id: %+v", d)
			}
			acks(t, again)
		})
	}
}
