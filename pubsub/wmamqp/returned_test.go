package wmamqp_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// version is that of the broker: what it does differs.
func (b *broker) version() (major, minor int) {
	b.Helper()
	text, _ := b.conn.Properties["version"].(string)
	testkit.Must(fmt.Sscanf(text, "%d.%d", &major, &minor))
	return major, minor
}

func (b *broker) atLeast(major, minor int) bool {
	b.Helper()
	is, of := b.version()
	return is > major || is == major && of >= minor
}

// Fact: what a quorum queue counts in x-delivery-count of a message that was returned, and in x-acquired-count, which
// RabbitMQ has from 4.3 on.
func TestFactQuorumQueuesCount(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		back    func(*amqp091.Channel, amqp091.Delivery) error
		uncount bool // not counted from 4.3 on
	}{
		"nack": {func(_ *amqp091.Channel, d amqp091.Delivery) error { return d.Nack(false, true) }, true},
		"nack after cancel": {func(c *amqp091.Channel, d amqp091.Delivery) error {
			testkit.NoError(t, c.Cancel(d.ConsumerTag, false))
			return d.Nack(false, true)
		}, true},
		"nack of all": {func(c *amqp091.Channel, _ amqp091.Delivery) error { return c.Nack(0, true, true) }, true},
		"reject":      {func(_ *amqp091.Channel, d amqp091.Delivery) error { return d.Reject(true) }, false},
		"close":       {func(c *amqp091.Channel, _ amqp091.Delivery) error { return c.Close() }, false},
		"recover": {func(c *amqp091.Channel, _ amqp091.Delivery) error {
			return c.Recover(true) //lint:ignore SA1019 brokers answer it, and old clients send it
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			queue := b.queue("quorum")
			b.send(queue, amqp091.Publishing{MessageId: "m"})
			c := testkit.Must(b.conn.Channel())
			var d amqp091.Delivery
			if strings.HasSuffix(name, "cancel") {
				d = testkit.Receive(t, "a message", testkit.Must(c.Consume(queue, "once", false, false, false, false, nil)))
			} else {
				d, _, _ = c.Get(queue, false)
			}
			testkit.NoError(t, row.back(c, d))
			_ = c.Close()
			var again amqp091.Delivery
			eventually(t, "it is back", func() (ok bool) {
				b.must(func(c *amqp091.Channel) (err error) { again, ok, err = c.Get(queue, true); return err })
				return ok
			})
			count, _ := again.Headers["x-delivery-count"].(int64)
			acquired, _ := again.Headers["x-acquired-count"].(int64)
			new := b.atLeast(4, 3)
			t.Logf("RabbitMQ %v: count %d, acquired %d", b.conn.Properties["version"], count, acquired)
			testkit.Check(t, count == int64(b2i(!row.uncount || !new)), "counted %d times", count)
			testkit.Check(t, acquired == int64(b2i(new)), "acquired %d times", acquired)
		})
	}
}

// Promise P1: however often our own side returns a message, by nacks and by its ends, its queue does not drop it: one
// that came back as often as the queue allows is published to its end. Before RabbitMQ 4.3 the queue counts each return,
// and from 4 on a queue without a limit has one of 20.
func TestNoReturnUsesUpTheLimit(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		arguments amqp091.Table
		given     bool // to the subscriber too
		times     int
	}{
		"no limit is set":     {nil, true, 25},
		"a limit":             {amqp091.Table{"x-delivery-limit": int32(3)}, true, 10},
		"a limit of another":  {amqp091.Table{"x-delivery-limit": int32(3)}, false, 10},
		"a limit of nothing":  {amqp091.Table{"x-delivery-limit": int32(0)}, true, 4},
		"no limit of another": {nil, false, 25},
	} {
		for way, returns := range map[string]func(t *testing.T, b *broker, change func(*wmamqp.SubscriberConfig), queue string, times int){
			"nacked": func(_ *testing.T, b *broker, change func(*wmamqp.SubscriberConfig), queue string, times int) {
				messages := b.subscribe(b.subscriber(inFlight(1), change), queue)
				for range times {
					b.next(messages).Nack()
				}
				acks(b, b.next(messages))
			},
			"nacked while placed": func(_ *testing.T, b *broker, change func(*wmamqp.SubscriberConfig), queue string, times int) {
				messages := b.subscribe(b.subscriber(inFlight(1), change), queue)
				for range times {
					msg := b.next(messages)
					place(msg)
					msg.Nack()
				}
				acks(b, b.next(messages))
			},
			"at the end": func(t *testing.T, b *broker, change func(*wmamqp.SubscriberConfig), queue string, times int) {
				for range times {
					sub := b.subscriber(inFlight(1), change, func(c *wmamqp.SubscriberConfig) {
						*wmamqp.SettleGrace(c) = time.Millisecond
					})
					b.next(testkit.Must(sub.Subscribe(graceful.With(t.Context(), time.Millisecond), queue)))
					b.closed("the subscriber", sub.Close())
				}
				acks(b, b.next(b.subscribe(b.subscriber(change), queue)))
			},
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				queue := b.topic()
				b.declareWith(queue, wmamqp.QuorumQueue(row.arguments))
				sent := amqp091.Publishing{MessageId: "m", Type: "order.placed", Priority: 2, Body: []byte("body"),
					Headers: amqp091.Table{"n": int32(7), "CC": []any{queue + "-nowhere"}}}
				b.send(queue, sent)
				returns(t, b, func(c *wmamqp.SubscriberConfig) {
					if row.given {
						c.AMQP.Queue.Arguments = wmamqp.QuorumQueue(row.arguments)
					}
				}, queue, row.times)
				eventually(t, "the queue is empty", func() bool { return b.ready(queue) == 0 })
			})
		}
	}
}

// Promise P2: what is published again for its queue's limit is the message as it was.
func TestPublishedAgainAsItWas(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	queue := b.topic()
	b.declareWith(queue, wmamqp.QuorumQueue(amqp091.Table{"x-delivery-limit": int32(1)}))
	b.send(queue, amqp091.Publishing{MessageId: "m", Type: "order.placed", Body: []byte("body"),
		Headers: amqp091.Table{"n": int32(7), "tenant": "acme", "_watermill_message_uuid": "id"}})
	messages := b.subscribe(b.subscriber(inFlight(1)), queue)
	first := b.next(messages)
	before := maps.Clone(first.Metadata)
	first.Nack()
	for range 3 {
		b.next(messages).Nack()
	}
	again := b.next(messages)
	testkit.Check(t, again.UUID == "id" && string(again.Payload) == "body" && maps.Equal(before, again.Metadata),
		"%s: first %v\nagain %v", again.UUID, before, again.Metadata)
	acks(t, again)
}

// Promise P1: where the user may not write to the default exchange, a message that its queue would drop is held, and
// delivered again from here. The log says so.
func TestHeldAtTheLimit(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	if b.atLeast(4, 3) {
		t.Skip("a nack does not count")
	}
	user := "reader-" + rand.Text()[:8]
	services.RabbitMQCtl(t, "add_user", user, "secret")
	t.Cleanup(func() { services.RabbitMQCtl(t, "delete_user", user) })
	services.RabbitMQCtl(t, "set_permissions", "-p", "/", user, "^spillway-", "^$", "^spillway-")
	uri := strings.Replace(b.uri, "spillway:spillway@", user+":secret@", 1)
	for way, release := range map[string]func(*message.Message){
		"nacked": func(msg *message.Message) { msg.Nack() },
		"placed": func(msg *message.Message) { place(msg); msg.Nack() },
	} {
		queue, logger := b.topic(), &testkit.Log{}
		b.declareWith(queue, wmamqp.QuorumQueue(amqp091.Table{"x-delivery-limit": int32(1)}))
		b.send(queue, amqp091.Publishing{MessageId: "m"})
		messages := b.subscribe(b.subscriber(inFlight(1), func(c *wmamqp.SubscriberConfig) {
			c.AMQP.Connection.AmqpURI, c.Logger = uri, logger
		}), queue)
		for range 5 {
			release(b.want(messages, "m"))
		}
		acks(t, b.want(messages, "m"))
		eventually(t, "the queue is empty", func() bool { return b.ready(queue) == 0 })
		n := len(logger.Lines(watermill.ErrorLogLevel, "The queue drops a message"))
		testkit.Check(t, n == 4, "%s: %d lines", way, n)
	}
}

// Feature D10: ends of processes in good order are no crashes, for no message that was fetched, where the queue tells
// them apart: from RabbitMQ 4.3 on.
func TestDeploysAreNoCrashes(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	queue := b.queue("quorum")
	ids := b.numbered(queue, 4)
	const deploys = 3
	for range deploys {
		sub := b.subscriber(prefetch(4), func(c *wmamqp.SubscriberConfig) { *wmamqp.SettleGrace(c) = time.Millisecond })
		b.next(testkit.Must(sub.Subscribe(graceful.With(t.Context(), time.Millisecond), queue)))
		b.unfetched(queue, 0)
		b.closed("the subscriber", sub.Close())
	}
	messages := b.subscribe(b.subscriber(), queue)
	want := deploys
	if b.atLeast(4, 3) {
		want = 0
	}
	for _, id := range ids {
		msg := b.want(messages, id)
		n, _ := wmamqp.DeliveryCount(msg)
		testkit.Check(t, n == want, "RabbitMQ %v: %s is counted %d times, want %d", b.conn.Properties["version"], id, n, want)
		acks(t, msg)
	}
}

// Promises P3, P4: when the broker cancels a consumer and leaves its channel open, contexts end, the log has a line, and
// consuming begins again.
func TestConsumerCancelled(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wmamqp.SubscriberConfig){
		"one at a time": func(*wmamqp.SubscriberConfig) {}, "in flight": inFlight(2), "lanes": keyed(2),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			queue, logger := b.topic(), &testkit.Log{}
			messages := b.subscribe(b.subscriber(change, func(c *wmamqp.SubscriberConfig) {
				c.Logger, *wmamqp.SettleGrace(c) = logger, time.Millisecond
			}), queue)
			b.send(queue, amqp091.Publishing{MessageId: "k1-1"})
			msg := b.next(messages)
			b.must(func(c *amqp091.Channel) error { _, err := c.QueueDelete(queue, false, false, false); return err })
			testkit.Within(t, "the end of the context", func() { <-msg.Context().Done() })
			msg.Nack()
			eventually(t, "the queue is there again", func() bool {
				return b.do(func(c *amqp091.Channel) error {
					_, err := c.QueueDeclarePassive(queue, true, false, false, false, nil)
					return err
				}) == nil
			})
			b.send(queue, amqp091.Publishing{MessageId: "k1-2"})
			acks(t, b.want(messages, "k1-2"))
			n := len(logger.Lines(watermill.InfoLogLevel, "The broker ended a consumer"))
			testkit.Check(t, n > 0, "no line")
		})
	}
}

// Promise P1: a stream, to which no message returns, is no source and no queue of letters, also one that another made.
func TestStreamsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	stream := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeStream}
	queue := b.topic()
	b.declareWith(queue, stream)
	for name, change := range map[string]func(*wmamqp.SubscriberConfig){
		"made by another":  func(*wmamqp.SubscriberConfig) {},
		"a quorum queue":   func(c *wmamqp.SubscriberConfig) { c.AMQP.Queue.Arguments = wmamqp.QuorumQueue(nil) },
		"asked for":        func(c *wmamqp.SubscriberConfig) { c.AMQP.Queue.Arguments = stream },
		"own topology":     func(c *wmamqp.SubscriberConfig) { c.AMQP.TopologyBuilder = untouched{} },
		"several channels": inFlight(3),
	} {
		_, err := b.subscriber(change).Subscribe(t.Context(), queue)
		testkit.Check(t, err != nil, "%s: it is taken", name)
		says(t, err, queue, "stream", "use a quorum or classic queue")
	}
	says(t, b.subscriber().Browse(t.Context(), queue, func(*message.Message) bool { return true }), queue, "stream")
	for _, change := range []func(*wmamqp.PublisherConfig){
		func(*wmamqp.PublisherConfig) {},
		func(c *wmamqp.PublisherConfig) { c.AllowLossyTopics = true },
		func(c *wmamqp.PublisherConfig) { c.AMQP.Queue.Arguments = stream },
	} {
		says(t, b.publisher(change).InitializeTopics(queue), queue, "stream", "use a quorum or classic queue")
	}
	if !b.atLeast(4, 0) {
		return
	}
	host := b.topic()
	services.RabbitMQCtl(t, "add_vhost", host, "--default-queue-type", "stream")
	t.Cleanup(func() { services.RabbitMQCtl(t, "delete_vhost", host) })
	services.RabbitMQCtl(t, "set_permissions", "-p", host, "spillway", ".*", ".*", ".*")
	uri := b.uri + host
	_, err := b.subscriber(func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpURI = uri }).Subscribe(t.Context(), "orders")
	testkit.Check(t, err != nil, "the default of the virtual host: it is taken")
	says(t, err, "orders", "stream")
}

// untouched is a topology that declares nothing.
type untouched struct{ amqp.DefaultTopologyBuilder }

func (untouched) BuildTopology(*amqp091.Channel, string, string, amqp.Config, watermill.LoggerAdapter) error {
	return nil
}

// Fact, feature R15: from RabbitMQ 4 on a quorum queue delivers messages of a priority above 4 before others.
func TestFactQuorumQueuesHavePriorities(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	queue := b.queue("quorum")
	for _, p := range []uint8{0, 1, 4, 5, 9, 0, 4, 6} {
		b.send(queue, amqp091.Publishing{Priority: p})
	}
	var order []uint8
	for range 8 {
		order = append(order, b.get(queue).Priority)
	}
	want := "[0 1 4 5 9 0 4 6]"
	switch {
	case b.atLeast(4, 3):
		want = "[9 6 5 0 4 0 4 1]" // none is 4
	case b.atLeast(4, 0):
		want = "[5 9 0 6 1 4 0 4]" // two of the high ones, then one of the others
	}
	testkit.Check(t, fmt.Sprint(order) == want, "RabbitMQ %v: %v, want %s", b.conn.Properties["version"], order, want)
}

// Feature R15: with Key, a message whose priority changes the order of its queue is in the log, once.
func TestKeyOfPriorities(t *testing.T) {
	t.Parallel()
	for kind, from := range map[string]int{"quorum": 4, "classic": 99} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			queue, logger := b.topic(), &testkit.Log{}
			messages := b.subscribe(b.subscriber(keyed(2), func(c *wmamqp.SubscriberConfig) {
				c.AMQP.Queue.Arguments = amqp091.Table{amqp091.SingleActiveConsumerArg: true, amqp091.QueueTypeArg: kind}
				if kind == "quorum" && b.atLeast(4, 0) {
					c.AMQP.Queue.Arguments["x-delivery-limit"] = int32(-1)
				}
				c.Logger = logger
			}), queue)
			lines := func() int { return len(logger.Lines(watermill.ErrorLogLevel, "The queue delivers by priority")) }
			for i, priority := range []uint8{0, 4, 9, 9} {
				b.send(queue, amqp091.Publishing{MessageId: fmt.Sprint("k-", i), Priority: priority})
				acks(t, b.next(messages))
				want := b2i(i >= 2 && b.atLeast(from, 0))
				testkit.Check(t, lines() == want, "RabbitMQ %v, priority %d: %d lines, want %d", b.conn.Properties["version"],
					priority, lines(), want)
			}
		})
	}
}

// Fact, feature R15: where a quorum queue puts what is returned. Before RabbitMQ 4.3 one without a limit puts what is
// nacked behind all others, and what a closed channel returns in its place.
func TestFactQuorumQueuesTakeBack(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{-1, 0, 9} {
		for name, back := range map[string]func(*amqp091.Channel) error{
			"nack": func(c *amqp091.Channel) error { return c.Nack(0, true, true) }, "close": (*amqp091.Channel).Close,
			"cancel, nack": func(c *amqp091.Channel) error { _ = c.Cancel("once", false); return c.Nack(0, true, true) },
		} {
			t.Run(fmt.Sprint(limit, "/", name), func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				queue, arguments := b.topic(), amqp091.Table{}
				if limit > 0 || limit < 0 && b.atLeast(4, 0) {
					arguments["x-delivery-limit"] = int32(limit)
				}
				b.declareWith(queue, wmamqp.QuorumQueue(arguments))
				b.numbered(queue, 5)
				c := testkit.Must(b.conn.Channel())
				testkit.NoError(t, c.Qos(3, 0, false))
				d := testkit.Must(c.Consume(queue, "once", false, false, false, false, nil))
				for range 3 {
					<-d
				}
				testkit.NoError(t, back(c))
				_ = c.Close()
				var order string
				for range 5 {
					order += b.get(queue).MessageId[5:]
				}
				want := "01234"
				if unlimited := limit < 0 || limit == 0 && b.isOld(); unlimited && name != "close" && !b.atLeast(4, 3) {
					want = "34012"
				}
				testkit.Check(t, order == want, "RabbitMQ %v, limit %d: %s", b.conn.Properties["version"], limit, order)
			})
		}
	}
}

// Promise P3: the context of a message that is not settled within the consumer_timeout ends, others get the message, and
// consuming goes on. From RabbitMQ 4.3 on a quorum queue has a time of its own, and leaves the channel open.
func TestConsumerTimeout(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	if !b.atLeast(4, 3) {
		t.Skip("the time-out is the broker's, and looked at once a minute")
	}
	queue, logger := b.topic(), &testkit.Log{}
	b.declareWith(queue, wmamqp.QuorumQueue(amqp091.Table{"x-consumer-timeout": int64(1000)}))
	b.send(queue, amqp091.Publishing{MessageId: "m"})
	messages := b.subscribe(b.subscriber(func(c *wmamqp.SubscriberConfig) {
		c.Logger, *wmamqp.SettleGrace(c) = logger, time.Millisecond
	}), queue)
	first := b.next(messages)
	testkit.Within(t, "the end of the context", func() { <-first.Context().Done() })
	acks(t, first) // too late
	acks(t, b.want(messages, "m"))
	n := len(logger.Lines(watermill.InfoLogLevel, "The broker ended a consumer"))
	testkit.Check(t, n == 1, "%d lines", n)
	eventually(t, "the queue is empty", func() bool { return b.ready(queue) == 0 })
}
