package wmamqp_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

func says(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		testkit.Check(t, err != nil && strings.Contains(err.Error(), part), "%v does not say %q", err, part)
	}
}

// Feature D4: a queue that refuses is an error. A quorum queue that refused goes on when its policy goes.
func TestPublishAfterPolicy(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p := b.publisher(func(config *wmamqp.PublisherConfig) { *wmamqp.Channels(config) = 2 })
	name := b.queue(amqp091.QueueTypeQuorum)
	policy := "of-" + name
	services.RabbitMQCtl(t, "set_policy", policy, "^"+regexp.QuoteMeta(name)+"$",
		`{"max-length":3,"overflow":"reject-publish"}`, "--apply-to", "queues")
	clear := sync.OnceFunc(func() { services.RabbitMQCtl(t, "clear_policy", policy) })
	defer clear()
	publish := func() (refused int) {
		var all sync.WaitGroup
		var n atomic.Int64
		for range 100 { // more than there are channels, so that some go together
			all.Go(func() {
				if err := p.Publish(name, message.NewMessage(watermill.NewUUID(), nil)); err != nil {
					says(t, err, "nack", name)
					n.Add(1)
				}
			})
		}
		all.Wait()
		return int(n.Load())
	}
	testkit.Eventually(t, "the queue refuses on all channels", func() bool { return publish() == 100 })
	clear()
	testkit.Eventually(t, "the queue takes all", func() bool { return publish() == 0 })
}

// Feature D6: headers that do not fit into a frame are refused before the broker closes the connection; what just fits
// is taken.
func TestHeadersTooLarge(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p, name := b.publisher(), b.queue()
	const frame = 128 << 10
	sized := func(n int) *message.Message {
		msg := message.NewMessage("id", []byte(strings.Repeat("body", 1<<20)))
		msg.Metadata["big"] = strings.Repeat("x", n)
		return msg
	}
	// What a queue adds, the frame, class to flags, delivery mode, the table's length, and two fields.
	fits := frame - 64 - 8 - 14 - 1 - 4 - (1 + len("big") + 5) - (1 + len("_watermill_message_uuid") + 5 + 2)
	testkit.NoError(t, p.Publish(name, sized(fits)))
	for _, n := range []int{fits + 1, 200 << 10} {
		err := p.Publish(name, sized(n))
		testkit.Check(t, errors.Is(err, classify.ErrTooLarge) && (*classify.Classifier)(nil).IsTooLarge(err),
			"%d bytes: %v", n, err)
	}
	if err := p.Publish(name, sized(10)); err != nil {
		t.Error(err)
	}
	got := b.get(name)
	testkit.Check(t, len(got.Headers["big"].(string)) == fits, "cut")
}

// Feature D5: the destinations are there after start-up: durable quorum queues, or the type asked for; those that were
// there with other arguments are taken; one that cannot be is an error that names it.
func TestInitializeTopics(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic()
	b.declare(topic + ".other") // classic, where the publisher declares quorum
	p := b.publisher()
	testkit.NoError(t, p.InitializeTopics(topic+".dlq", topic+".other"))
	for _, name := range []string{topic + ".dlq", topic + ".other"} {
		err := p.Publish(name, message.NewMessage("id", nil))
		testkit.Check(t, err == nil, "%v", err)
	}
	same := wmamqp.QuorumQueue(nil)
	if b.atLeast(4, 0) {
		same = unlimited
	}
	b.declareWith(topic+".dlq", same) // the same arguments are no error
	says(t, p.InitializeTopics("amq.forbidden"), `"amq.forbidden"`, "declare it")
	says(t, p.InitializeTopics(strings.Repeat("q", 256)), "255")

	classic := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Queue.Arguments = amqp091.Table{"x-queue-type": "classic"} })
	testkit.NoError(t, classic.InitializeTopics(topic+".invalid"))
	b.declareWith(topic+".invalid", amqp091.Table{"x-queue-type": "classic"})
}

// Feature D4: a broker that fails to make a quorum queue, since its members elect no leader in time, is asked again by
// publisher and subscriber. What writes down their terms stands still, so that none can be elected.
func TestFactQuorumQueuesAreNotMade(t *testing.T) {
	b := newBroker(t)
	p, s := b.publisher(), b.subscriber(func(c *wmamqp.SubscriberConfig) { c.AMQP.Queue.Arguments = wmamqp.QuorumQueue(nil) })
	services.RabbitMQCtl(t, "eval", "sys:suspend(ra_log_meta), timer:apply_after(8000, sys, resume, [ra_log_meta]).")
	var both sync.WaitGroup
	for name, declares := range map[string]func() error{
		"publisher":  func() error { return p.InitializeTopics(b.topic()) },
		"subscriber": func() error { return s.Declare(b.topic()) },
	} {
		both.Go(func() {
			if err := declares(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	both.Wait()
}

// Feature D5: with an exchange the queue is bound to it. An exchange that is missing, or disappears, is an error until it
// is declared again.
func TestExchange(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic()
	p := b.publisher(func(c *wmamqp.PublisherConfig) {
		c.AMQP = amqp.NewDurablePubSubConfig(b.uri, nil)
		c.AMQP.Exchange.Type = "direct"
		c.AMQP.Publish.GenerateRoutingKey = func(topic string) string { return "key of " + topic }
		c.AMQP.QueueBind.GenerateRoutingKey = func(queue string) string { return "key of " + queue }
	})
	says(t, p.Publish(topic, message.NewMessage("id", nil)), "closed", "404", topic, "key of")
	testkit.NoError(t, p.InitializeTopics(topic))
	testkit.NoError(t, p.Publish(topic, message.NewMessage("id", nil)))
	b.must(func(c *amqp091.Channel) error { return c.ExchangeDelete(topic, false, false) })
	says(t, p.Publish(topic, message.NewMessage("id", nil)), "closed", "404") // and not "no confirm within 10 s"
	testkit.NoError(t, p.InitializeTopics(topic))
	err := p.Publish(topic, message.NewMessage("id", nil))
	testkit.Check(t, err == nil, "%v", err)
	testkit.Equal(t, "messages", b.ready(topic), 2)
}

// Promise P1: a configuration that could lose a message is an error at construction.
func TestConfigRefusals(t *testing.T) {
	t.Parallel()
	const none = "amqp://127.0.0.1:1/"
	for want, change := range map[string]func(*wmamqp.PublisherConfig){
		"Transactional": func(c *wmamqp.PublisherConfig) { c.AMQP.Publish.Transactional = true },
		"Immediate":     func(c *wmamqp.PublisherConfig) { c.AMQP.Publish.Immediate = true },
		"AmqpURI":       func(c *wmamqp.PublisherConfig) { c.AMQP.Connection.AmqpURI = "amqp://other/" },
	} {
		var config wmamqp.PublisherConfig
		change(&config)
		testkit.Says(t, testkit.Err(wmamqp.NewPublisher(none, config)), want)
	}
	for want, change := range map[string]func(*wmamqp.SubscriberConfig){
		"NoRequeueOnNack": func(c *wmamqp.SubscriberConfig) { c.AMQP.Consume.NoRequeueOnNack = true },
		"InFlight is -1":  inFlight(-1),
		"InFlight is 101": inFlight(101),
		"PrefetchCount 2": func(c *wmamqp.SubscriberConfig) { c.InFlight, c.AMQP.Consume.Qos.PrefetchCount = 2, 2 },
		"Exclusive":       func(c *wmamqp.SubscriberConfig) { c.InFlight, c.AMQP.Consume.Exclusive = 2, true },
		"AmqpURI":         func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpURI = "amqp://other/" },
	} {
		var config wmamqp.SubscriberConfig
		change(&config)
		testkit.Says(t, testkit.Err(wmamqp.NewSubscriber(none, config)), want)
	}
	for uri, want := range map[string]string{"": "URI is empty", "http://x": "AMQP URI"} {
		testkit.Says(t, testkit.Err(wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{})), want)
		testkit.Says(t, testkit.Err(wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{})), want)
	}
	b := newBroker(t)
	for _, want := range []string{"x-message-ttl", "x-expires", "x-max-length", "x-delivery-limit"} {
		p := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Queue.Arguments = amqp091.Table{want: 1000} })
		says(t, p.InitializeTopics("never"), want)
	}
	p := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Queue.GenerateName = amqp.GenerateQueueNameConstant("other") })
	says(t, p.InitializeTopics("topic"), `"topic"`, `"other"`, "agree")
	says(t, p.Publish(strings.Repeat("k", 256), message.NewMessage("", nil)), "255")
}

// Features D4 and D5: of many messages that callers publish at the same time on one channel, each is in its queue when
// Publish returns nil, and a missing queue is the error of its own messages alone, and names it.
func TestPublishTogether(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue("quorum")
	p := b.publisher(func(c *wmamqp.PublisherConfig) { *wmamqp.Channels(c), c.ConfirmTimeout = 1, patience })
	const n = 200
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			to := topic
			if i%7 == 0 {
				to += "-missing"
			}
			errs[i] = p.Publish(to, message.NewMessage(fmt.Sprint(i), make([]byte, 100)))
		})
	}
	all.Wait()
	want := 0
	for i, err := range errs {
		missing := i%7 == 0
		if !missing {
			want++
		}
		if missing {
			says(t, err, "returned the message", "default exchange", topic+"-missing", "NO_ROUTE")
		} else if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	messages := b.subscribe(b.subscriber(prefetch(50)), topic)
	ids := b.ack(messages, want)
	testkit.Check(t, len(slices.Compact(ids)) == want, "%d of %d messages came", len(slices.Compact(ids)), want)
	b.none(messages)
	b.closed("the publisher", p.Close())
	says(t, p.Publish(topic, message.NewMessage("id", nil)), "closed")
}

// Promise P1: when the connection is lost under many messages on one channel, each message whose Publish returned nil
// is in its queue.
func TestPublishTogetherConnectionLost(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, proxy := b.queue("quorum"), b.proxy()
	p := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Connection.AmqpURI, *wmamqp.Channels(c) = proxy.uri, 1 })
	var published list
	var all sync.WaitGroup
	cut := sync.OnceFunc(proxy.Cut)
	for caller := range 64 {
		all.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d", caller, i)
				if p.Publish(topic, message.NewMessage(id, make([]byte, 100))) != nil {
					return
				}
				if published.add(id); i == 5 {
					cut()
				}
			}
		})
	}
	all.Wait()
	proxy.Heal()
	messages := b.subscribe(b.subscriber(prefetch(50)), topic)
	missing := map[string]bool{}
	for _, id := range published.get() {
		missing[id] = true
	}
	t.Logf("%d were published", len(missing))
	for len(missing) > 0 {
		msg := b.next(messages)
		acks(t, msg)
		delete(missing, msg.UUID)
	}
}
