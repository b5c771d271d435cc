package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

// memory is a pub/sub that keeps every sentence of the contract within one process, or all but the one that it breaks.
type memory struct {
	breaks string // a key of broken
	mu     sync.Mutex
	topics map[string]*memoryTopic
	seen   map[string]bool // topic and id
}

type memoryTopic struct {
	log    []*message.Message
	groups map[string]*memoryGroup
}

type memoryGroup struct {
	next int                // in the log
	back []*message.Message // requeued, and first to be delivered
	held int
}

func newMemory(breaks string) *memory {
	return &memory{breaks: breaks, topics: map[string]*memoryTopic{}, seen: map[string]bool{}}
}

func (m *memory) target(t *testing.T) Target {
	return Target{
		Name:       "memory " + m.breaks,
		Publisher:  func(testing.TB) message.Publisher { return &memoryPublisher{memory: m} },
		Subscriber: func(_ testing.TB, group string) message.Subscriber { return newMemorySubscriber(m, group, 0) },
		Redelivers: func(_ testing.TB, group string, after time.Duration) message.Subscriber {
			return newMemorySubscriber(m, group, after)
		},
		CreateTopic: func(_ testing.TB, topic string) { m.create(topic) },
		BadTopic:    "no topic!",
		MaxMessage:  1 << 20,
		Backlog: func(_ testing.TB, group string) func(context.Context, string) (int, error) {
			return func(_ context.Context, topic string) (int, error) { return m.backlog(topic, group), nil }
		},
	}
}

func (m *memory) name(topic string) string {
	if m.breaks == "names in lower case" {
		return strings.ToLower(topic)
	}
	return topic
}

func (m *memory) create(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if topic = m.name(topic); m.topics[topic] == nil {
		m.topics[topic] = &memoryTopic{groups: map[string]*memoryGroup{}}
	}
}

func (m *memory) backlog(topic, group string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.topics[topic]
	g := of.group(group)
	if m.breaks == "counts all" {
		return len(of.log)
	}
	return len(of.log) - g.next + len(g.back) + g.held
}

func (t *memoryTopic) group(name string) *memoryGroup {
	if t.groups[name] == nil {
		t.groups[name] = &memoryGroup{}
	}
	return t.groups[name]
}

type memoryPublisher struct {
	*memory
	published atomic.Int32
}

func (p *memoryPublisher) InitializeTopics(topics ...string) error {
	for _, topic := range topics {
		if strings.Contains(topic, "!") {
			return errors.New("no topic can be " + topic)
		}
		if p.breaks != "makes no topics" {
			p.create(topic)
		}
	}
	return nil
}

func (p *memoryPublisher) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if len(msg.Payload) > 1<<20 {
			if p.breaks == "refuses in words of its own" {
				return errors.New("this will not do")
			}
			return classify.ErrTooLarge
		}
		if n := p.published.Add(1); n%7 == 3 && p.breaks == "confirms what is not sent" {
			continue
		}
		if err := p.append(topic, msg.Copy()); err != nil {
			return err
		}
	}
	return nil
}

func (p *memoryPublisher) Close() error { return nil }

func (m *memory) append(topic string, msg *message.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.topics[m.name(topic)]
	if of == nil {
		return errors.New("there is no topic " + topic)
	}
	switch m.breaks {
	case "deduplicates":
		if m.seen[topic+msg.UUID] {
			return nil
		}
		m.seen[topic+msg.UUID] = true
	case "new ids":
		msg.UUID = strings.ToUpper(msg.UUID)
	case "renames keys":
		for key, value := range msg.Metadata {
			delete(msg.Metadata, key)
			msg.Metadata[strings.ReplaceAll(key, " ", "-")] = value
		}
	case "reorders":
		if n := len(of.log); n > 0 && n%5 == 0 {
			of.log = slices.Insert(of.log, n-1, msg)
			return nil
		}
	case "trims":
		if len(of.log) >= 100 {
			of.log = of.log[1:]
		}
	}
	of.log = append(of.log, msg)
	return nil
}

// take returns the next message of a group, or nil.
func (m *memory) take(topic, group string) *message.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.topics[m.name(topic)]
	if of == nil {
		return nil
	}
	g := of.group(group)
	if m.breaks == "one at a time" && g.held > 0 {
		return nil
	}
	var msg *message.Message
	switch {
	case len(g.back) > 0:
		msg, g.back = g.back[0], g.back[1:]
	case g.next < len(of.log):
		msg = of.log[g.next]
		g.next++
	default:
		return nil
	}
	g.held++
	return msg
}

// settle ends a delivery, and gives the message back if it is not acked.
func (m *memory) settle(topic, group string, msg *message.Message, acked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.topics[m.name(topic)].group(group)
	g.held--
	if !acked {
		g.back = append(g.back, msg)
	}
}

type memorySubscriber struct {
	*memory
	group string
	after time.Duration // a message that is held so long comes again
	ctx   context.Context
	end   context.CancelFunc
	all   sync.WaitGroup
}

func newMemorySubscriber(m *memory, group string, after time.Duration) *memorySubscriber {
	if m.breaks == "every instance is a group" {
		group += rand.Text()
	}
	s := &memorySubscriber{memory: m, group: group, after: after}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

func (s *memorySubscriber) RedeliveryTime() time.Duration { return s.after }

func (s *memorySubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.ctx, cancel)
	s.all.Go(func() {
		defer close(out)
		for ctx.Err() == nil {
			msg := s.take(topic, s.group)
			if msg == nil {
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Millisecond):
				}
				continue
			}
			s.settle(topic, s.group, msg, s.deliver(ctx, topic, out, msg))
		}
	})
	return out, nil
}

// deliver reports whether the message is acked.
func (s *memorySubscriber) deliver(ctx context.Context, topic string, out chan<- *message.Message, kept *message.Message) bool {
	msg := kept.Copy()
	if string(msg.Payload) == Unreadable {
		if s.breaks == "passes over what it cannot read" {
			return true
		}
		poison.MarkUnreadable(msg, errors.New("no such schema"))
	}
	of, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.breaks == "contexts live on" {
		of = context.WithoutCancel(ctx)
	}
	msg.SetContext(of)
	select {
	case out <- msg:
	case <-ctx.Done():
		return s.breaks == "acks what is left at Close"
	}
	again := make(<-chan time.Time)
	if s.after > 0 {
		again = time.After(s.after)
	}
	if s.breaks == "redelivers what is held" {
		again = time.After(500 * time.Millisecond)
	}
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
		return s.breaks == "acks on nack"
	case <-again:
		return false
	case <-ctx.Done():
		return s.breaks == "acks what is left at Close"
	}
}

func (s *memorySubscriber) Close() error {
	s.end()
	s.all.Wait()
	if s.breaks == "forgets at Close" {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, topic := range s.topics {
			topic.group(s.group).next = 0
		}
	}
	return nil
}
