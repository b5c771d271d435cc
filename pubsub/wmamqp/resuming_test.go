package wmamqp_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

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
	if unraced(t) {
		return
	}
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
