package wmamqp_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// The facts about watermill-amqp that this package answers to. When one of these tests fails, watermill-amqp repaired
// it: say so in the README.

func (b *broker) stockSubscriber(change ...func(*amqp.Config)) *amqp.Subscriber {
	b.Helper()
	config := amqp.NewDurableQueueConfig(b.uri)
	for _, f := range change {
		f(&config)
	}
	s := testkit.Must(amqp.NewSubscriber(config, watermill.NopLogger{}))
	b.Cleanup(func() { _ = s.Close() })
	return s
}

func (b *broker) stockPublisher(change ...func(*amqp.Config)) *amqp.Publisher {
	b.Helper()
	config := amqp.NewDurableQueueConfig(b.uri)
	for _, f := range change {
		f(&config)
	}
	p := testkit.Must(amqp.NewPublisher(config, watermill.NopLogger{}))
	b.Cleanup(func() { _ = p.Close() })
	return p
}

// counting counts what the stock marshaler cannot read.
type counting struct {
	amqp.DefaultMarshaler
	failed, empty atomic.Int32
}

func (c *counting) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	if d.Acknowledger == nil {
		c.empty.Add(1)
	}
	msg, err := c.DefaultMarshaler.Unmarshal(d)
	if err != nil {
		c.failed.Add(1)
	}
	return msg, err
}

// Fact, feature D8: a header that is no string is requeued for ever, and what is behind it never delivered. On a quorum
// queue one nack is enough, because the broker then counts in a header. TestRedeliveryIsTheSameMessage shows that ours
// delivers both.
func TestFactWatermillRequeuesForeignHeaders(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for kind, headers := range map[string]amqp091.Table{"classic": {"n": int32(1)}, "quorum": nil} {
		topic, m, arguments := b.topic(), &counting{}, amqp091.Table(nil)
		if kind == "quorum" {
			arguments = wmamqp.QuorumQueue(nil)
			if b.atLeast(4, 0) { // or the queue drops it
				arguments = unlimited
			}
		}
		b.declareWith(topic, arguments)
		b.send(topic, amqp091.Publishing{Headers: headers})
		messages := b.subscribe(b.stockSubscriber(func(c *amqp.Config) {
			c.Marshaler = m
			if kind == "quorum" {
				c.Queue.Arguments = arguments
			}
		}), topic)
		if kind == "quorum" {
			b.next(messages).Nack()
		} else {
			b.send(topic, amqp091.Publishing{Headers: amqp091.Table{"s": "fine"}})
		}
		eventually(t, "the message has come a hundred times", func() bool { return m.failed.Load() > 100 })
		select {
		case msg := <-messages:
			t.Errorf("%s: delivered: %v", kind, msg.Metadata)
		default:
		}
	}
}

// Fact, feature D5: publishing to a queue that does not exist is no error, with confirms and mandatory on.
// TestPublishTogether shows that it is one with ours.
func TestFactWatermillLosesToMissingQueue(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p := b.stockPublisher(func(c *amqp.Config) { c.Publish.ConfirmDelivery, c.Publish.Mandatory = true, true })
	err := p.Publish(b.topic(), message.NewMessage("m", nil))
	testkit.Check(t, err == nil, "it is an error: %v", err)
}

// Fact, feature D4: confirms are off by default: what a full queue refuses is lost. TestPublishAfterPolicy shows that
// ours tells.
func TestFactWatermillDoesNotConfirm(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	testkit.Check(t, !amqp.NewDurableQueueConfig(b.uri).Publish.ConfirmDelivery, "confirms are on")
	topic, p := b.topic(), b.stockPublisher()
	b.declareWith(topic, amqp091.Table{
		amqp091.QueueMaxLenArg: 1, amqp091.QueueOverflowArg: amqp091.QueueOverflowRejectPublish,
	})
	for range 3 {
		err := p.Publish(topic, message.NewMessage("m", nil))
		testkit.Check(t, err == nil, "it is an error: %v", err)
	}
	eventually(t, "one is there", func() bool { return b.ready(topic) == 1 })
}

// Fact, feature D6: a header of 200 KiB closes the connection. TestHeadersTooLarge shows that ours refuses it before.
func TestFactLargeHeaderClosesConnection(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue()
	conn := testkit.Must(amqp091.Dial(b.uri))
	closed := conn.NotifyClose(make(chan *amqp091.Error, 1))
	c := testkit.Must(conn.Channel())
	p, _ := amqp.DefaultMarshaler{}.Marshal(message.NewMessage("m", nil))
	p.Headers["big"] = strings.Repeat("x", 200<<10)
	if err := c.Publish("", topic, true, false, p); err != nil {
		t.Log(err)
	}
	select {
	case err := <-closed:
		t.Log(err)
	case <-time.After(patience):
		t.Error("the connection lives")
		_ = conn.Close()
	}
}

// Fact, promise P3: Close gives a message back while its handler runs, whose context lives on. TestCloseInHandler shows
// that ours waits for it.
func TestFactWatermillRedeliversAtClose(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue()
	b.send(topic, amqp091.Publishing{MessageId: "m"})
	sub := b.stockSubscriber()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	messages := testkit.Must(sub.Subscribe(ctx, topic))
	b.next(messages) // which is not settled: its handler runs
	second := b.subscribe(b.stockSubscriber(), topic)
	go func() { _ = sub.Close() }()
	b.next(second).Ack()
}

// Fact: when its queue is deleted, watermill-amqp takes the end of its consumer for messages. TestQueueDeleted shows
// that ours does not.
func TestFactWatermillInventsMessages(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, m := b.queue(), &counting{}
	messages := b.subscribe(b.stockSubscriber(func(c *amqp.Config) { c.Marshaler = m }), topic)
	b.send(topic, amqp091.Publishing{})
	b.next(messages).Ack() // it consumes
	b.must(func(c *amqp091.Channel) error { _, err := c.QueueDelete(topic, false, false, false); return err })
	msg := b.next(messages)
	testkit.Check(t, msg.UUID == "" && len(msg.Payload) == 0 && m.empty.Load() != 0, "%s", msg.UUID)
}
