// Package redelivering is a pub/sub in memory that delivers a message again that has no ack for some time, as NATS
// JetStream and Redis Streams do. It is for tests, in a bubble of testing/synctest too.
package redelivering

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// PubSub delivers a message again that has no ack for some time, to any consumer of the topic. A copy that is on its
// way stays there when another copy is acked. An ack of any copy acks them all.
type PubSub struct {
	// After is that time. It begins when the message is sent to the client, where it may wait.
	After time.Duration
	// Ahead is how many messages without an ack a client has at most: JetStream's is 1000 by default, that of Redis
	// Streams 2. One client handles Parallel messages at the same time.
	Ahead, Parallel int
	// Ends means that a message's context ends with that time, as the client of JetStream has it.
	Ends bool
	// InPlace means that a nack redelivers to the same client at once, as the client of Redis Streams does.
	InPlace bool
	// Loses is called for each ack, one at a time, and reports whether it is lost on its way. It may be nil.
	Loses func(topic, id string) bool

	mu      sync.Mutex
	entries map[string][]*entry // by topic; those that are not acked
	clients map[string][]*Subscriber
	copies  int // deliveries after the first
}

// New returns a PubSub whose clients have any number of messages, and handle one at a time.
func New(after time.Duration) *PubSub {
	return &PubSub{After: after, Ahead: 1000, Parallel: 1, entries: map[string][]*entry{},
		clients: map[string][]*Subscriber{}}
}

// nacked is how long a nacked message takes to come again: in a bubble, time stands still until all wait.
const nacked = 10 * time.Millisecond

type entry struct {
	*message.Message
	due       time.Time // of its next delivery, if it is not acked
	delivered int
}

// Subscriber is a client with what it has received. It subscribes to one topic.
type Subscriber struct {
	pubsub *PubSub
	topic  string
	says   time.Duration
	buffer chan *entry
	ctx    context.Context
	close  context.CancelFunc
	ended  sync.WaitGroup
	values context.Context
	have   int // in the buffer or in hand
}

// Publish returns nil.
func (p *PubSub) Publish(topic string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		p.entries[topic] = append(p.entries[topic], &entry{Message: msg.Copy()})
	}
	p.push(topic)
	return nil
}

// Close returns nil.
func (p *PubSub) Close() error { return nil }

// push sends what is due to the client that has least. The caller holds mu.
func (p *PubSub) push(topic string) {
	now := time.Now()
	for _, e := range p.entries[topic] {
		if e.due.After(now) || len(p.clients[topic]) == 0 {
			continue
		}
		c := slices.MinFunc(p.clients[topic], func(a, b *Subscriber) int { return a.have - b.have })
		if c.have >= p.Ahead {
			return
		}
		if e.delivered++; e.delivered > 1 {
			p.copies++
		}
		c.have++
		e.due = now.Add(p.After)
		c.buffer <- e
	}
}

// tick redelivers until ctx ends.
func (c *Subscriber) tick() {
	every := time.NewTicker(c.pubsub.After / 8)
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

func (p *PubSub) acked(topic string, e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Loses != nil && p.Loses(topic, e.UUID) {
		return
	}
	p.entries[topic] = slices.DeleteFunc(p.entries[topic], func(other *entry) bool { return other == e })
}

// Left returns how many messages are not acked.
func (p *PubSub) Left() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, entries := range p.entries {
		n += len(entries)
	}
	return n
}

// Copies returns how many deliveries were not the first of their message.
func (p *PubSub) Copies() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.copies
}

// Subscriber returns a client that says the redelivery time, or with a negative time nothing.
func (p *PubSub) Subscriber(says time.Duration) *Subscriber {
	ctx, cancel := context.WithCancel(context.Background())
	return &Subscriber{pubsub: p, says: says, buffer: make(chan *entry, 100_000), ctx: ctx, close: cancel}
}

// RedeliveryTime returns what the client was made with.
func (c *Subscriber) RedeliveryTime() time.Duration { return c.says }

// Subscribe delivers what is and what will be published to the topic.
func (c *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	c.topic = topic
	c.values = ctx
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
		for range c.pubsub.Parallel {
			handling.Go(func() { c.consume(out) })
		}
		handling.Wait()
		c.pubsub.mu.Lock()
		defer c.pubsub.mu.Unlock()
		c.pubsub.clients[topic] = slices.DeleteFunc(c.pubsub.clients[topic], func(other *Subscriber) bool {
			return other == c
		})
	})
	return out, nil
}

func (c *Subscriber) consume(out chan<- *message.Message) {
	for {
		select {
		case e := <-c.buffer:
			for c.deliver(e, out) {
				select { // in place; a router that closes holds a lock meanwhile, behind which no time passes
				case <-time.After(nacked):
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

func (c *Subscriber) deliver(e *entry, out chan<- *message.Message) (again bool) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var timeout <-chan time.Time
	if c.pubsub.Ends {
		timer := time.NewTimer(c.pubsub.After)
		defer timer.Stop()
		timeout = timer.C
	}
	msg := e.Copy()
	msg.SetContext(valuesOf{ctx, c.values})
	select {
	case out <- msg:
	case <-ctx.Done():
		return false
	}
	select {
	case <-msg.Acked():
		c.pubsub.acked(c.topic, e)
	case <-msg.Nacked():
		if c.pubsub.InPlace {
			return ctx.Err() == nil
		}
		c.pubsub.mu.Lock()
		e.due = time.Now().Add(nacked)
		c.pubsub.mu.Unlock()
	case <-timeout:
	case <-ctx.Done():
	}
	return false
}

// Close leaves what has no ack to other clients.
func (c *Subscriber) Close() error {
	c.close()
	c.ended.Wait()
	return nil
}

// valuesOf is a context with the values of another one: messages have those of Subscribe.
type valuesOf struct {
	context.Context
	of context.Context
}

func (c valuesOf) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.of.Value(key)
}
