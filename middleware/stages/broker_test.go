package stages_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold"
)

// broker is a pub/sub that keeps what is not acked. The consumers of a topic share its messages, in order.
type broker struct {
	mu        sync.Mutex
	waiting   map[string][]*kept
	arrived   map[string]chan struct{}
	refuses   func(topic string, msg *message.Message) error
	published map[string]int
	// lasts is how long the session of a delivery lasts: then it is cancelled, and the message delivered again,
	// whatever becomes of it meanwhile. Nil or 0 is for as long as it takes.
	lasts func(topic string) time.Duration
	// deadline is the ack deadline of a delivery, as a SQL subscriber has one. Nil is none.
	deadline func(topic string) time.Duration
	// endless is a broker whose messages' contexts outlive their subscriber.
	endless bool
	// prefetch is how many messages a consumer delivers at the same time, and holds how long its adapter lets a part
	// hold one. 0 is one message, and what parts do by themselves.
	prefetch int
	holds    time.Duration
	// redelivers is what a consumer says of the time after which the broker delivers a message again. 0 is never.
	redelivers time.Duration
	lost       int      // sessions that ended because lasts was over
	closed     []string // the topics whose consumers were closed
}

// kept is a message in the broker.
type kept struct {
	*message.Message
	taken bool
}

// redelivery is how long a nacked message takes to come again: in a bubble time stands still until everybody waits.
const redelivery = 10 * time.Millisecond

func newBroker() *broker {
	return &broker{waiting: map[string][]*kept{}, arrived: map[string]chan struct{}{}, published: map[string]int{}}
}

// refuseStages refuses what goes to any stage.
func (b *broker) refuseStages(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuses = func(to string, _ *message.Message) error {
		if strings.Contains(to, ".retry.") {
			return err
		}
		return nil
	}
}

func (b *broker) Publish(topic string, messages ...*message.Message) error {
	b.mu.Lock()
	refuses := b.refuses
	b.mu.Unlock()
	for _, msg := range messages {
		if refuses != nil {
			if err := refuses(topic, msg); err != nil {
				return err
			}
		}
		b.mu.Lock()
		b.published[topic]++
		b.waiting[topic] = append(b.waiting[topic], &kept{Message: msg.Copy()})
		b.ring(topic)
		b.mu.Unlock()
	}
	return nil
}

func (b *broker) Close() error { return nil }

func (b *broker) ring(topic string) {
	if bell := b.arrived[topic]; bell != nil {
		close(bell)
		delete(b.arrived, topic)
	}
}

// take returns the next message, or what is closed when there may be one.
func (b *broker) take(topic string) (*kept, chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.waiting[topic] {
		if !k.taken {
			k.taken = true
			return k, nil
		}
	}
	if b.arrived[topic] == nil {
		b.arrived[topic] = make(chan struct{})
	}
	return nil, b.arrived[topic]
}

func (b *broker) settle(topic string, k *kept, acked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.taken = false
	if acked {
		b.waiting[topic] = slices.DeleteFunc(b.waiting[topic], func(other *kept) bool { return other == k })
	}
	b.ring(topic)
}

// left are the ids of what is in the broker still, by topic.
func (b *broker) left() map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := map[string][]string{}
	for topic, messages := range b.waiting {
		for _, k := range messages {
			left[topic] = append(left[topic], k.UUID)
		}
	}
	return left
}

// times is how often something was published to topic.
func (b *broker) times(topic string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.published[topic]
}

// consumer delivers one message after the other, as a Kafka partition does.
type consumer struct {
	*broker
	topic  string
	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func (b *broker) consumer() *consumer {
	c := &consumer{broker: b}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *consumer) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(c.ctx, cancel)
	c.topic = topic
	c.ended.Go(func() {
		defer close(out)
		var delivering sync.WaitGroup
		for range max(c.prefetch, 1) {
			delivering.Go(func() { c.consume(ctx, topic, out) })
		}
		delivering.Wait()
	})
	return out, nil
}

func (c *consumer) consume(ctx context.Context, topic string, out chan<- *message.Message) {
	for ctx.Err() == nil {
		k, bell := c.take(topic)
		if k == nil {
			select {
			case <-bell:
			case <-ctx.Done():
			}
			continue
		}
		c.settle(topic, k, c.deliver(ctx, topic, k, out))
	}
}

// deliver reports whether the message was acked in time.
func (c *consumer) deliver(ctx context.Context, topic string, k *kept, out chan<- *message.Message) bool {
	session, end := context.WithCancel(ctx)
	defer end()
	if c.endless {
		session = context.WithoutCancel(session)
	}
	lost := make(chan struct{})
	c.mu.Lock()
	lasts := c.lasts
	if c.deadline != nil {
		session, end = context.WithTimeout(session, c.deadline(topic))
		defer end()
	}
	c.mu.Unlock()
	if lasts != nil {
		if d := lasts(topic); d > 0 {
			defer time.AfterFunc(d, func() {
				c.mu.Lock()
				c.broker.lost++
				c.mu.Unlock()
				end()
				close(lost)
			}).Stop()
		}
	}
	if c.holds > 0 {
		session = hold.WithMaxHold(session, c.holds)
	}
	msg := k.Copy()
	msg.SetContext(session)
	select {
	case out <- msg:
	case <-ctx.Done():
		return false
	}
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
	case <-lost:
	}
	select {
	case <-time.After(redelivery):
	case <-ctx.Done(): // a router that closes holds a lock meanwhile, behind which no time passes
	}
	return false
}

func (c *consumer) RedeliveryTime() time.Duration { return c.redelivers }

func (c *consumer) Close() error {
	c.cancel()
	c.ended.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = append(c.closed, c.topic)
	return nil
}
