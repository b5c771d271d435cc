package wmkafka

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
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
					if err := pub.Publish(topic, message.NewMessage(fmt.Sprint(i), nil)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	for _, topic := range topics {
		if n := c.size(topic); n != 80 {
			t.Errorf("%s has %d records", topic, n)
		}
	}
	if n := pub.own(); n != 3 {
		t.Errorf("%d producers", n)
	}
	other := c.publisher(PublisherConfig{ProducerPerTopic: true}).producers
	if first, second := other.begin(c.topic), other.begin(c.topic); first != second { // as of two that came at once
		t.Error("a topic's producer was opened twice")
	}
	if plain := c.publisher(PublisherConfig{}); plain.Publish(topics[0], message.NewMessage("", nil)) != nil || plain.own() != 0 {
		t.Error("a producer of its own that was not asked for")
	}
}

// held is a dialer that holds up what is written on connections made under a label.
type held struct {
	lock   sync.Mutex
	label  string
	gates  map[string]chan struct{} // closed to let through
	refuse bool
	dials  int
}

func (h *held) set(label string, refuse bool) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.label, h.refuse = label, refuse
}

// hold holds up a label's connections until release is called.
func (h *held) hold(label string) (release func()) {
	h.lock.Lock()
	defer h.lock.Unlock()
	gate := make(chan struct{})
	h.gates = map[string]chan struct{}{label: gate}
	return sync.OnceFunc(func() { close(gate) })
}

func (h *held) Dial(network, address string) (net.Conn, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.dials++
	if h.refuse {
		return nil, errors.New("connection refused")
	}
	conn, err := net.DialTimeout(network, address, 5*time.Second)
	return &heldConn{conn, h, h.label}, err
}

func (h *held) into(config *sarama.Config) {
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, h
}

type heldConn struct {
	net.Conn
	of    *held
	label string
}

func (c *heldConn) Write(b []byte) (int, error) {
	c.of.lock.Lock()
	gate := c.of.gates[c.label]
	c.of.lock.Unlock()
	if gate != nil {
		<-gate
	}
	return c.Conn.Write(b)
}

// Decision 7: a message does not wait for the one that is on its way to another topic.
func TestProducersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &held{}
	pub := c.publisher(PublisherConfig{ProducerPerTopic: true, Sarama: dialer.into})
	topics := c.topics(2)
	for _, topic := range topics {
		dialer.set(topic, false)
		testkit.NoError(t, pub.Publish(topic, message.NewMessage("first", nil)))
	}
	release := dialer.hold(topics[0])
	defer release()
	slow, quick := make(chan error, 1), make(chan error, 1)
	go func() { slow <- pub.Publish(topics[0], message.NewMessage("held up", nil)) }()
	go func() { quick <- pub.Publish(topics[1], message.NewMessage("not held up", nil)) }()
	select {
	case err := <-quick:
		testkit.NoError(t, err)
	case <-time.After(patience):
		t.Error("it waits for the other topic")
	}
	select {
	case err := <-slow:
		t.Fatalf("it was not held up: %v", err)
	default:
	}
	release()
	testkit.NoError(t, <-slow)
}

// Decision 4: a producer that cannot be opened is the error of those who waited for it, and the next message tries
// again.
func TestProducerThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &held{}
	pub := c.publisher(PublisherConfig{ProducerPerTopic: true, Sarama: dialer.into})
	publish := func() error { return pub.Publish(c.topic, message.NewMessage("", nil)) }
	for range 2 {
		dialer.set("", true)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := publish(); err == nil || !strings.Contains(err.Error(), c.topic) || !strings.Contains(err.Error(), c.brokers[0]) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := pub.own(); n != 0 {
			t.Errorf("%d producers", n)
		}
	}
	dialer.set("", false)
	if err := publish(); err != nil || pub.own() != 1 {
		t.Error(err)
	}
	before := dialer.dials
	if err := publish(); err != nil || dialer.dials != before {
		t.Errorf("%v, %d more connections", err, dialer.dials-before)
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
			all.Go(func() {
				if err := pub.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		testkit.Is(t, pub.InitializeTopics("x"), ErrClosed)
	}
}
