package poison

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// sink is a publisher that keeps what it takes, and refuses as it is told.
type sink struct {
	mu     sync.Mutex
	taken  map[string][]*message.Message
	tries  int
	refuse func(try int, topic string, msg *message.Message) error
}

func (s *sink) Publish(topic string, messages ...*message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, msg := range messages {
		s.tries++
		if s.refuse != nil {
			if err := s.refuse(s.tries, topic, msg); err != nil {
				return err
			}
		}
		if s.taken == nil {
			s.taken = map[string][]*message.Message{}
		}
		s.taken[topic] = append(s.taken[topic], msg)
	}
	return nil
}

func (s *sink) Close() error { return nil }

func (s *sink) in(topic string) []*message.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[topic]
}

func (s *sink) topics() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var topics []string
	for topic, messages := range s.taken {
		topics = append(topics, fmt.Sprintf("%s:%d", topic, len(messages)))
	}
	return strings.Join(topics, " ")
}

// running is a router with one handler, "billing" on topic, behind a queue.
type running struct {
	*gochannel.GoChannel
	t      *testing.T
	topic  string
	router *message.Router
	outs   *sink
}

func start(t *testing.T, topic string, dead message.Publisher, config QueueConfig, handle message.HandlerFunc) *running {
	t.Helper()
	queue := newQueue(t, dead, config)
	router := testkit.Must(
		message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{}))
	r := &running{gochannel.NewGoChannel(gochannel.Config{}, nil), t, topic, router, &sink{}}
	router.AddSubscriberDecorators(queue.InitializeOnSubscribe)
	router.AddHandler("billing", topic, r.GoChannel, "out", r.outs, handle).AddMiddleware(queue.Middleware)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		testkit.Is(t, router.Close(), nil)
		testkit.Is(t, <-done, nil)
	})
	return r
}

func (r *running) publish(msg *message.Message) {
	r.t.Helper()
	testkit.NoError(r.t, r.Publish(r.topic, msg))
}

var eventually = testkit.Eventually

func failing(err error) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("output", nil)}, err
	}
}

func newQueue(t interface {
	Helper()
	Fatal(...any)
}, dead message.Publisher, config QueueConfig) *Queue {
	t.Helper()
	return testkit.Must(NewQueue(dead, config))
}
