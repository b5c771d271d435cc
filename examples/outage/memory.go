package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// memory is a topic in this process. As a broker does, it hands out so many messages at the same time, keeps a message
// until it is acked, and delivers it again if it is nacked.
type memory struct {
	inFlight chan struct{}

	mu      sync.Mutex
	waiting []*message.Message
	taken   int           // handed out and not settled
	wake    chan struct{} // holds one value if something may be waiting

	closing chan struct{}
	running sync.WaitGroup
	once    sync.Once
}

func newMemory(inFlight int) *memory {
	return &memory{inFlight: make(chan struct{}, inFlight), wake: make(chan struct{}, 1), closing: make(chan struct{})}
}

// Publish adds copies of messages to the topic.
func (m *memory) Publish(_ string, messages ...*message.Message) error {
	copies := make([]*message.Message, len(messages))
	for i, msg := range messages {
		copies[i] = msg.Copy()
	}
	m.add(false, copies...)
	return nil
}

func (m *memory) add(back bool, messages ...*message.Message) {
	m.mu.Lock()
	if back {
		m.waiting = append(messages, m.waiting...)
	} else {
		m.waiting = append(m.waiting, messages...)
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Subscribe hands out the messages. There is one subscription.
func (m *memory) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	ctx, cancel := context.WithCancel(ctx)
	m.running.Go(func() {
		defer close(out)
		defer cancel()
		for m.next(ctx, out) {
		}
	})
	return out, nil
}

// next hands out one message. It reports false if the subscription has ended.
func (m *memory) next(ctx context.Context, out chan<- *message.Message) bool {
	select {
	case m.inFlight <- struct{}{}:
	case <-m.closing:
		return false
	case <-ctx.Done():
		return false
	}
	for {
		if original := m.take(); original != nil {
			return m.deliver(ctx, out, original)
		}
		select {
		case <-m.wake:
		case <-m.closing:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (m *memory) take() *message.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 {
		return nil
	}
	first := m.waiting[0]
	m.waiting = m.waiting[1:]
	m.taken++
	return first
}

func (m *memory) deliver(ctx context.Context, out chan<- *message.Message, original *message.Message) bool {
	msg := original.Copy()
	ctx, cancel := context.WithCancel(ctx)
	msg.SetContext(ctx)
	select {
	case out <- msg:
	case <-m.closing:
		cancel()
		m.settle(original, true)
		return false
	}
	m.running.Go(func() {
		defer cancel()
		select {
		case <-msg.Acked():
			m.settle(original, false)
		case <-msg.Nacked():
			time.Sleep(10 * time.Millisecond) // so that a message which is refused at once does not spin
			m.settle(original, true)
		case <-m.closing:
			cancel() // its session has ended, and its handler gives it back
			select {
			case <-msg.Acked():
				m.settle(original, false)
			case <-msg.Nacked():
				m.settle(original, true)
			}
		}
	})
	return true
}

func (m *memory) settle(original *message.Message, back bool) {
	m.mu.Lock()
	m.taken--
	m.mu.Unlock()
	if back {
		m.add(true, original)
	}
	<-m.inFlight
}

// backlog returns how many messages are not acked.
func (m *memory) backlog(context.Context) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiting) + m.taken, nil
}

// Close ends the subscription.
func (m *memory) Close() error {
	m.once.Do(func() { close(m.closing) })
	ended := make(chan struct{})
	go func() { m.running.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-time.After(30 * time.Second):
		return errors.New("handlers of the topic do not end")
	}
}
