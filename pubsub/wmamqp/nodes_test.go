package wmamqp_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// host is the broker's host and port, and at its URI with other hosts.
func (b *broker) host() string { return testkit.Must(url.Parse(b.uri)).Host }

func (b *broker) at(hosts ...string) string {
	return strings.Replace(b.uri, b.host(), strings.Join(hosts, ","), 1) + "?connection_timeout=3000"
}

// Promise P1: with several nodes in the URI, a node that is away is passed over at the start, and a connection that is
// lost goes on at another node, for publisher and subscriber.
func TestSeveralNodes(t *testing.T) {
	if unraced(t) {
		return
	}
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
