package wmkafka

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// topics creates topics of the test's own.
func (c *cluster) topics(n int) (topics []string) {
	c.Helper()
	for i := range n {
		topics = append(topics, fmt.Sprint(c.topic, ".", i))
		c.create(topics[i], 1, nil)
	}
	return topics
}

// own is how many topics have a producer of their own.
func (p *Publisher) own() int {
	p.producers.lock.Lock()
	defer p.producers.lock.Unlock()
	return len(p.producers.byTopic)
}

// Decision 7: with a producer for each topic, opened by the first publisher, all that many publish at once is there,
// and topics beyond the bound share one.
func TestProducerPerTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{ProducerPerTopic: true})
	pub.producers.most = 3
	topics := c.topics(5)
	var all sync.WaitGroup
	for _, topic := range topics {
		for range 4 {
			all.Go(func() {
				for i := range 20 {
					testkit.Is(t, pub.Publish(topic, message.NewMessage(fmt.Sprint(i), nil)), nil)
				}
			})
		}
	}
	all.Wait()
	for _, topic := range topics {
		testkit.Equal(t, topic, c.size(topic), 80)
	}
	testkit.Equal(t, "producers", pub.own(), 3)
	other := c.publisher(PublisherConfig{ProducerPerTopic: true}).producers
	first := other.begin(c.topic)
	testkit.Check(t, first == other.begin(c.topic), "a topic's producer was opened twice") // by two at once
	plain := c.publisher(PublisherConfig{})
	testkit.NoError(t, plain.Publish(topics[0], message.NewMessage("", nil)))
	testkit.Equal(t, "producers that were not asked for", plain.own(), 0)
}

// Decision 7: a message does not wait for the one that is on its way to another topic.
func TestProducersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer, freezers := &faulty{}, []*sync.RWMutex{}
	pub := c.publisher(PublisherConfig{ProducerPerTopic: true, Sarama: dialer.into})
	topics := c.topics(2)
	for _, topic := range topics {
		freezers = append(freezers, dialer.freezer()) // of the topic's connections
		testkit.NoError(t, pub.Publish(topic, message.NewMessage("first", nil)))
	}
	freezers[0].Lock()
	release := sync.OnceFunc(freezers[0].Unlock)
	defer release()
	slow, quick := make(chan error, 1), make(chan error, 1)
	go func() { slow <- pub.Publish(topics[0], message.NewMessage("held up", nil)) }()
	go func() { quick <- pub.Publish(topics[1], message.NewMessage("not held up", nil)) }()
	testkit.NoError(t, testkit.Receive(t, "it does not wait for the other topic", quick))
	testkit.Require(t, len(slow) == 0, "it was not held up")
	release()
	testkit.NoError(t, <-slow)
}

// Decision 4: a producer that cannot be opened is the error of those who waited for it, and the next message tries
// again.
func TestProducerThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &faulty{}
	pub := c.publisher(PublisherConfig{ProducerPerTopic: true, Sarama: dialer.into})
	publish := func() error { return pub.Publish(c.topic, message.NewMessage("", nil)) }
	for range 2 {
		dialer.set(false, true)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				err := publish()
				testkit.Says(t, err, c.topic)
				testkit.Says(t, err, c.brokers[0])
			})
		}
		all.Wait()
		testkit.Equal(t, "producers", pub.own(), 0)
	}
	dialer.set(false, false)
	for range 2 {
		testkit.NoError(t, publish())
		testkit.Equal(t, "producers", pub.own(), 1)
	}
}

// After Close nothing is published, whether its producer is there, is being opened or never was, and none is left
// behind: goleak would see it.
func TestCloseOfProducers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topics := c.topics(8)
	for _, perTopic := range []bool{true, true, true, false} {
		pub := c.publisher(PublisherConfig{ProducerPerTopic: perTopic})
		var all sync.WaitGroup
		for i, topic := range topics {
			all.Go(func() {
				for range i { // so that some are opened when it closes
					_ = pub.Publish(topics[0], message.NewMessage("", nil))
				}
				for {
					if err := pub.Publish(topic, message.NewMessage("", nil)); err != nil {
						testkit.Is(t, err, ErrClosed)
						return
					}
				}
			})
		}
		c.eventually("it publishes", func() bool { return pub.own() > 2 || !perTopic && pub.producers.used.Load() > 20 })
		for range 2 {
			all.Go(func() { testkit.Is(t, pub.Close(), nil) })
		}
		all.Wait()
		testkit.Is(t, pub.InitializeTopics("x"), ErrClosed)
	}
}
