package wmamqp_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

func TestMain(m *testing.M) {
	// Tests have queues of their own and mostly wait for RabbitMQ, so more run at once than there are processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	for begun := time.Now(); code == 0; { // what Close leaves behind ends by itself, after the wait before the next dial
		left := goleak.Find()
		if left == nil {
			break
		}
		if time.Since(begun) > patience {
			fmt.Fprintln(os.Stderr, left)
			code = 1
		}
	}
	os.Exit(code)
}

const patience = testkit.Patience

// patient gives handlers all the time that they need to settle at the end.
func patient(c *wmamqp.SubscriberConfig) { *wmamqp.SettleGrace(c) = patience }

var eventually = testkit.Eventually

// broker is RabbitMQ as a test sees it, beside the code under test.
type broker struct {
	testing.TB
	uri  string
	conn *amqp091.Connection
}

func newBroker(t testing.TB) *broker {
	t.Helper()
	uri := services.AMQP(t)
	conn := testkit.Must(amqp091.Dial(uri))
	t.Cleanup(func() { _ = conn.Close() })
	return &broker{t, uri, conn}
}

func (b *broker) do(f func(*amqp091.Channel) error) error {
	b.Helper()
	c := testkit.Must(b.conn.Channel())
	defer func() { _ = c.Close() }()
	return f(c)
}

func (b *broker) must(f func(*amqp091.Channel) error) {
	b.Helper()
	testkit.NoError(b, b.do(f))
}

// topic is a name for this test alone. Queues and exchanges that begin so are deleted with it.
func (b *broker) topic(also ...string) string {
	name := strings.ToLower("spillway-" + strings.ReplaceAll(b.Name(), "/", "-") + "-" + rand.Text()[:8])
	b.Cleanup(func() {
		for _, suffix := range append(also, "", ".dlq", ".invalid", ".dlq.parked", ".other") {
			_ = b.do(func(c *amqp091.Channel) error { _, err := c.QueueDelete(name+suffix, false, false, false); return err })
			_ = b.do(func(c *amqp091.Channel) error { return c.ExchangeDelete(name+suffix, false, false) })
		}
	})
	return name
}

// queue declares a queue of its own: classic, or of the type given.
func (b *broker) queue(kind ...string) string {
	b.Helper()
	name := b.topic()
	b.declare(name, kind...)
	return name
}

func (b *broker) declare(name string, kind ...string) {
	b.Helper()
	if len(kind) > 0 && kind[0] == "quorum" {
		b.declareWith(name, wmamqp.QuorumQueue(nil))
	} else {
		b.declareWith(name, nil)
	}
}

// send publishes as a foreign program would, and waits for the confirm.
func (b *broker) send(queue string, p amqp091.Publishing) {
	b.Helper()
	b.must(func(c *amqp091.Channel) error {
		if err := c.Confirm(false); err != nil {
			return err
		}
		confirm, err := c.PublishWithDeferredConfirm("", queue, true, false, p)
		if err != nil {
			return err
		}
		if !confirm.Wait() {
			return fmt.Errorf("not confirmed")
		}
		return nil
	})
}

// get takes a message from a queue, which must be there in time.
func (b *broker) get(queue string) amqp091.Delivery {
	b.Helper()
	var d amqp091.Delivery
	eventually(b, "a message in "+queue, func() (ok bool) {
		b.must(func(c *amqp091.Channel) (err error) { d, ok, err = c.Get(queue, true); return err })
		return ok
	})
	return d
}

// inspect is what the broker says of a queue.
func (b *broker) inspect(queue string) (q amqp091.Queue) {
	b.Helper()
	b.must(func(c *amqp091.Channel) (err error) {
		q, err = c.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	return q
}

func (b *broker) ready(queue string) int { return b.inspect(queue).Messages }

func (b *broker) consumers(queue string) int { return b.inspect(queue).Consumers }

// closed judges what Close returned. That the end takes longer than Close may is no fault on a machine that is busy:
// TestCloseWhateverThePeerDoes holds Close to its time, and TestMain waits for the end.
func (b *broker) closed(what string, err error) {
	b.Helper()
	if err != nil && !strings.Contains(err.Error(), "by itself") && !strings.Contains(err.Error(), "ends with its connection") {
		b.Errorf("close %s: %v", what, err)
	} else if err != nil {
		b.Logf("close %s: %v", what, err)
	}
}

func (b *broker) publisher(change ...func(*wmamqp.PublisherConfig)) *wmamqp.Publisher {
	b.Helper()
	var config wmamqp.PublisherConfig
	for _, f := range change {
		f(&config)
	}
	p := testkit.Must(wmamqp.NewPublisher(cmp.Or(config.AMQP.Connection.AmqpURI, b.uri), config))
	b.Cleanup(func() { b.closed("the publisher", p.Close()) })
	return p
}

func (b *broker) subscriber(change ...func(*wmamqp.SubscriberConfig)) *wmamqp.Subscriber {
	b.Helper()
	var config wmamqp.SubscriberConfig
	for _, f := range change {
		f(&config)
	}
	s := testkit.Must(wmamqp.NewSubscriber(cmp.Or(config.AMQP.Connection.AmqpURI, b.uri), config))
	b.Cleanup(func() { b.closed("the subscriber", s.Close()) })
	return s
}

func (b *broker) subscribe(s message.Subscriber, topic string) <-chan *message.Message {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	messages := testkit.Must(s.Subscribe(ctx, topic))
	return messages
}

func (b *broker) next(messages <-chan *message.Message) *message.Message {
	b.Helper()
	msg := testkit.Receive(b, "a message", messages)
	testkit.Require(b, msg != nil, "the subscription has ended")
	return msg
}

// list is what handlers report to a test.
type list struct {
	mu sync.Mutex
	of []string
}

func (l *list) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = append(l.of, s)
}

func (l *list) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.of...)
}
