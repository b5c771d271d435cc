package stages_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// redelivering is a pub/sub that delivers a message again that has no ack for some time, to any consumer of the topic, as NATS JetStream and
// Redis Streams do. A copy that is on its way stays there when another copy is acked.
type redelivering struct {
	after time.Duration // from the delivery to the client on, where a message may wait
	// ahead is how many messages without an ack a client has at most: JetStream's is 1000 by default, that of Redis Streams 2. One client
	// handles parallel messages at the same time.
	ahead, parallel int
	// ends means that a message's context ends with that time, as the client of JetStream has it.
	ends bool
	// inPlace means that a nack redelivers to the same client at once, as the client of Redis Streams does.
	inPlace bool
	// loses is called for each ack, and reports whether it is lost on its way.
	loses func(topic, id string) bool

	mu      sync.Mutex
	entries map[string][]*entry // by topic; those that are not acked
	clients map[string][]*client
	copies  int // deliveries after the first
}

type entry struct {
	*message.Message
	due       time.Time // of its next delivery, if it is not acked
	delivered int
}

// client is a consumer with what it has received.
type client struct {
	pubsub *redelivering
	topic  string
	says   func() time.Duration
	buffer chan *entry
	ctx    context.Context
	close  context.CancelFunc
	ended  sync.WaitGroup
	have   int // in the buffer or in hand
}

func newRedelivering(after time.Duration) *redelivering {
	return &redelivering{after: after, ahead: 1000, parallel: 1, entries: map[string][]*entry{}, clients: map[string][]*client{}}
}

func (p *redelivering) Publish(topic string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		p.entries[topic] = append(p.entries[topic], &entry{Message: msg.Copy()})
	}
	p.push(topic)
	return nil
}

func (p *redelivering) Close() error { return nil }

// push sends what is due to the client that has least. The caller holds mu.
func (p *redelivering) push(topic string) {
	now := time.Now()
	for _, e := range p.entries[topic] {
		if e.due.After(now) || len(p.clients[topic]) == 0 {
			continue
		}
		c := slices.MinFunc(p.clients[topic], func(a, b *client) int { return a.have - b.have })
		if c.have >= p.ahead {
			return
		}
		if e.delivered++; e.delivered > 1 {
			p.copies++
		}
		c.have++
		e.due = now.Add(p.after)
		c.buffer <- e
	}
}

// tick redelivers until ctx ends.
func (c *client) tick() {
	every := time.NewTicker(c.pubsub.after / 8)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			c.pubsub.mu.Lock()
			c.pubsub.push(c.topic)
			c.pubsub.mu.Unlock()
		case <-c.ctx.Done():
			return
		}
	}
}

func (p *redelivering) acked(topic string, e *entry) {
	if p.loses != nil && p.loses(topic, e.UUID) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries[topic] = slices.DeleteFunc(p.entries[topic], func(other *entry) bool { return other == e })
}

func (p *redelivering) left() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, entries := range p.entries {
		n += len(entries)
	}
	return n
}

// subscriber returns one that says the redelivery time, or with a negative time nothing.
func (p *redelivering) subscriber(says time.Duration) *client {
	ctx, cancel := context.WithCancel(context.Background())
	return &client{pubsub: p, says: func() time.Duration { return says }, buffer: make(chan *entry, 100_000), ctx: ctx, close: cancel}
}

func (c *client) RedeliveryTime() time.Duration { return c.says() }

func (c *client) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	c.topic = topic
	out := make(chan *message.Message)
	context.AfterFunc(ctx, c.close)
	c.pubsub.mu.Lock()
	c.pubsub.clients[topic] = append(c.pubsub.clients[topic], c)
	c.pubsub.push(topic)
	c.pubsub.mu.Unlock()
	c.ended.Go(c.tick)
	c.ended.Go(func() {
		defer close(out)
		var handling sync.WaitGroup
		for range c.pubsub.parallel {
			handling.Go(func() { c.consume(out) })
		}
		handling.Wait()
		c.pubsub.mu.Lock()
		defer c.pubsub.mu.Unlock()
		c.pubsub.clients[topic] = slices.DeleteFunc(c.pubsub.clients[topic], func(other *client) bool { return other == c })
	})
	return out, nil
}

func (c *client) consume(out chan<- *message.Message) {
	for {
		select {
		case e := <-c.buffer:
			for c.deliver(e, out) {
				select { // in place; a router that closes holds a lock meanwhile, behind which no time passes
				case <-time.After(redelivery):
				case <-c.ctx.Done():
				}
			}
			c.pubsub.mu.Lock()
			c.have--
			c.pubsub.push(c.topic)
			c.pubsub.mu.Unlock()
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *client) deliver(e *entry, out chan<- *message.Message) (again bool) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var timeout <-chan time.Time
	if c.pubsub.ends {
		timer := time.NewTimer(c.pubsub.after)
		defer timer.Stop()
		timeout = timer.C
	}
	msg := e.Copy()
	msg.SetContext(ctx)
	select {
	case out <- msg:
	case <-ctx.Done():
		return false
	}
	select {
	case <-msg.Acked():
		c.pubsub.acked(c.topic, e)
	case <-msg.Nacked():
		if c.pubsub.inPlace {
			return ctx.Err() == nil
		}
		c.pubsub.mu.Lock()
		e.due = time.Now().Add(redelivery)
		c.pubsub.mu.Unlock()
	case <-timeout:
	case <-ctx.Done():
	}
	return false
}

func (c *client) Close() error {
	c.close()
	c.ended.Wait()
	return nil
}
