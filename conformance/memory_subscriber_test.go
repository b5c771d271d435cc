package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

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
