package wmamqp_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

const (
	closesWithin = 4 * time.Second
	quickly      = 2 * time.Second // where the peer answers, or there is nothing to ask it
)

// Feature D4, promise P3: Close returns within 4 s as a whole, after the drain of a subscription, whatever the peer
// does and whatever is in flight; what is left then ends by itself, and leaves no goroutine.
func TestCloseWhateverThePeerDoes(t *testing.T) {
	for _, how := range []string{alive, silent, cutOff, gone, lost} {
		for what, use := range map[string]func(*testing.T, *peer) (closes func() error){
			"publisher":  peerPublisher,
			"publishing": peerPublishing,
			"opening":    peerOpening,
			"subscriber": peerSubscriber,
			"idle":       peerIdle,
		} {
			for name, later := range map[string]time.Duration{"at once": 0, "later": 20 * time.Second} {
				t.Run(how+"/"+what+"/"+name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := &peer{}
						closes := use(t, p)
						synctest.Wait()
						p.falls(how)
						time.Sleep(later)
						begun := time.Now()
						err := closes()
						took := time.Since(begun)
						t.Logf("%s: %v", took, err)
						least := time.Duration(0)
						if what == "subscriber" { // a handler never ends
							least = graceful.Timeout
						}
						testkit.Check(t, took <= least+closesWithin && (how != alive || took <= least+quickly &&
							err == nil), "Close took %s: %v", took, err)
						again := closes()
						testkit.Check(t, again == err, "closed again: %v", again)
						testkit.Check(t, took == time.Since(begun), "closed again in %s", time.Since(begun)-took)
						time.Sleep(2 * time.Minute) // then the test fails for each goroutine that is left
					})
				})
			}
		}
	}
}

func peerPublisher(_ *testing.T, p *peer) func() error {
	pub := testkit.Must(wmamqp.NewPublisher("amqp://peer/", wmamqp.PublisherConfig{AMQP: p.config()}))
	testkit.Must(0, pub.Publish("q", message.NewMessage("1", nil)))
	return pub.Close
}

// peerPublishing is a publisher with two messages in flight when it is closed, on a channel that is open and on
// another.
func peerPublishing(_ *testing.T, p *peer) func() error {
	config := wmamqp.PublisherConfig{AMQP: p.config(), ConfirmTimeout: time.Hour}
	*wmamqp.Channels(&config) = 2
	pub := testkit.Must(wmamqp.NewPublisher("amqp://peer/", config))
	testkit.Must(0, pub.Publish("q", message.NewMessage("1", nil)))
	return func() error {
		for range 2 {
			go func() { _ = pub.Publish("q", message.NewMessage("2", nil)) }()
		}
		synctest.Wait()
		return pub.Close()
	}
}

// peerOpening is a publisher that opens a channel when it is closed.
func peerOpening(_ *testing.T, p *peer) func() error {
	config := wmamqp.PublisherConfig{AMQP: p.config(), ConfirmTimeout: time.Hour}
	pub := testkit.Must(wmamqp.NewPublisher("amqp://peer/", config))
	return func() error {
		go func() { _ = pub.Publish("q", message.NewMessage("1", nil)) }()
		synctest.Wait()
		return pub.Close()
	}
}

// peerSubscriber is a subscriber with three messages in hand, two of which are not settled: one handler obeys its
// context and one does not.
func peerSubscriber(_ *testing.T, p *peer) func() error {
	sub := testkit.Must(wmamqp.NewSubscriber("amqp://peer/", wmamqp.SubscriberConfig{AMQP: p.config(), InFlight: 3}))
	messages := testkit.Must(sub.Subscribe(context.Background(), "q"))
	first, second := <-messages, <-messages
	<-messages
	first.Ack()
	go func() {
		<-second.Context().Done()
		second.Nack()
	}()
	go func() {
		for msg := range messages {
			msg.Nack()
		}
	}()
	return sub.Close
}

func peerIdle(_ *testing.T, p *peer) func() error {
	return testkit.Must(wmamqp.NewSubscriber("amqp://peer/", wmamqp.SubscriberConfig{AMQP: p.config()})).Close
}

// Feature O5, decision 17: a queue that cannot be consumed for several tries of several consumers is one Error line,
// and one Info line when it can.
func TestConsumingResumedInTheLog(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	logger, name := &testkit.Log{}, b.topic()
	messages := b.subscribe(b.subscriber(inFlight(3), func(c *wmamqp.SubscriberConfig) { c.Logger = logger }), name)
	other := testkit.Must(amqp091.Dial(b.uri))
	defer func() { _ = other.Close() }()
	eventually(t, "another connection has the queue for itself", func() bool {
		c := testkit.Must(other.Channel())
		defer func() { _ = c.Close() }()
		if _, err := c.QueueDelete(name, false, false, false); err != nil {
			return false
		}
		_, err := c.QueueDeclare(name, true, false, true, false, nil) // the subscriber may be faster
		return err == nil
	})
	eventually(t, "several tries of each consumer", func() bool {
		const text = "Consuming could not"
		return len(logger.Lines(watermill.ErrorLogLevel, text))+len(logger.Lines(watermill.DebugLogLevel, text)) >= 7
	})
	if n := len(logger.Lines(watermill.InfoLogLevel, "Consuming has begun again")); n != 0 {
		t.Errorf("%d ends of an outage that lasts", n)
	}
	if err := other.Close(); err != nil { // deletes its queue
		t.Fatal(err)
	}
	eventually(t, "consuming again", func() bool {
		return len(logger.Lines(watermill.InfoLogLevel, "Consuming has begun again")) > 0
	})
	b.send(name, amqp091.Publishing{Body: []byte("m")})
	b.next(messages).Ack()
	errors := logger.Errors()
	testkit.Check(t, len(errors) == 1, "Error lines: %v", errors)
	if n := len(logger.Lines(watermill.InfoLogLevel, "Consuming has begun again")); n != 1 {
		t.Errorf("%d Info lines for the end", n)
	}
}

// Feature O5, decision 17: while the broker cannot be reached, a publisher and a subscriber each log one Error line,
// however often they dial.
func TestDialledAgainInTheLog(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	logs := map[string]*testkit.Log{}
	name, proxy := b.queue(), b.proxy()
	newLogger := func(of string) watermill.LoggerAdapter {
		logs[of] = &testkit.Log{}
		return logs[of]
	}
	through := func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpURI = proxy.uri }
	sub := b.subscriber(through, func(c *wmamqp.SubscriberConfig) { c.Logger = newLogger("subscriber") })
	pub := b.publisher(func(c *wmamqp.PublisherConfig) {
		c.AMQP.Connection.AmqpURI, c.Logger = proxy.uri, newLogger("publisher")
	})
	messages := b.subscribe(sub, name)
	dialled := func(logger *testkit.Log) int {
		const text = "Cannot reconnect"
		return len(logger.Lines(watermill.ErrorLogLevel, text)) + len(logger.Lines(watermill.InfoLogLevel, text)) +
			len(logger.Lines(watermill.DebugLogLevel, text))
	}
	for outage := 1; outage <= 2; outage++ {
		proxy.Cut()
		for of, logger := range logs {
			eventually(t, of+" dials in vain, several times", func() bool { return dialled(logger) >= outage*3 })
		}
		proxy.Heal()
		eventually(t, "the publisher is connected again", func() bool {
			return pub.Publish(name, message.NewMessage("id", nil)) == nil
		})
		b.next(messages).Ack()
		for of, logger := range logs {
			errors := logger.Errors()
			testkit.Check(t, len(errors) == outage, "%s: Error lines after %d outages: %v", of, outage, errors)
			n := len(logger.Lines(watermill.InfoLogLevel, "Cannot reconnect"))
			testkit.Check(t, n == outage, "%s: %d Info lines with the cause after %d outages", of, n, outage)
		}
	}
}

// host is the broker's host and port, and at its URI with other hosts.
func (b *broker) host() string { return testkit.Must(url.Parse(b.uri)).Host }

func (b *broker) at(hosts ...string) string {
	return strings.Replace(b.uri, b.host(), strings.Join(hosts, ","), 1) + "?connection_timeout=3000"
}

// Promise P1: with several nodes in the URI, a node that is unavailable is passed over at the start, and a connection
// that is lost goes on at another node, for publisher and subscriber.
func TestSeveralNodes(t *testing.T) {
	const noBroker = "127.0.0.1:1"
	for name, fails := range map[string]func(*testing.T, *broker) (hosts []string, later func()){
		"first is dead": func(_ *testing.T, b *broker) ([]string, func()) { return []string{noBroker, b.host()}, func() {} },
		"first does not answer": func(_ *testing.T, b *broker) ([]string, func()) {
			hung := b.proxy()
			hung.HalfOpen()
			return []string{hung.Addr(), b.host()}, func() {}
		},
		"first dies later": func(_ *testing.T, b *broker) ([]string, func()) {
			dies := b.proxy()
			return []string{dies.Addr(), b.host()}, dies.Cut
		},
		"both die in turn": func(_ *testing.T, b *broker) ([]string, func()) {
			first, second := b.proxy(), b.proxy()
			second.Cut()
			return []string{first.Addr(), second.Addr()}, func() { second.Heal(); first.Cut() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.topic()
			hosts, later := fails(t, b)
			uri := b.at(hosts...)
			pub := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Connection.AmqpURI = uri })
			testkit.NoError(t, pub.InitializeTopics(topic))
			sub := b.subscriber(func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpURI = uri })
			messages := b.subscribe(sub, topic)
			for _, id := range []string{"before", "after"} {
				testkit.Eventually(t, id+" is published", func() bool { return pub.Publish(topic, message.NewMessage(id, nil)) == nil })
				for msg := b.next(messages); ; msg = b.next(messages) { // a message whose ack was lost comes again
					msg.Ack()
					if msg.UUID == id {
						break
					}
				}
				later()
			}
		})
	}
}
