package stages_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// letters takes dead letters.
type letters struct {
	mu   sync.Mutex
	kept map[string]poison.Letter
	n    int
}

func (l *letters) Publish(topic string, messages ...*message.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, msg := range messages {
		letter, err := poison.Decode(msg)
		if err != nil {
			return err
		}
		letter.DeadLetterTopic = topic
		l.kept[msg.UUID] = letter
		l.n++
	}
	return nil
}

func (l *letters) Close() error { return nil }

func (l *letters) all() map[string]poison.Letter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.kept)
}

func newStaging(t *testing.T, config stages.Config, logger watermill.LoggerAdapter, queue ...*poison.Queue) *staging {
	t.Helper()
	s := &staging{T: t, broker: newBroker(), letters: &letters{kept: map[string]poison.Letter{}}}
	queue = append(queue, newQueue(t, s.letters))
	config.Logger = logger
	if config.Publisher == nil {
		config.Publisher = s.broker
	}
	if config.Subscriber == nil {
		config.Subscriber = func(string, string) (message.Subscriber, error) { return s.broker.consumer(), nil }
	}
	s.stages = testkit.Must(stages.New(queue[0], config))
	s.again()
	return s
}

// again makes another router, on the same broker, with the whole chain.
func (s *staging) again() {
	s.Helper()
	s.bare()
	s.router.AddMiddleware(newQueue(s, s.letters).Middleware, s.stages.Middleware, middleware.Recover)
	s.router.AddPlugin(s.stages.Plugin)
}

// bare makes another router, without any part.
func (s *staging) bare() {
	s.Helper()
	s.router = testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: time.Hour}, watermill.NopLogger{}))
}

func (s *staging) handle(name, topic string, h message.NoPublishHandlerFunc) *message.Handler {
	return testkit.Must(s.stages.AddConsumerHandler(s.router, name, topic, s.broker.consumer(), h))
}

func (s *staging) run() {
	s.Helper()
	done := make(chan error, 1)
	router := s.router
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	s.stop = func() {
		testkit.Is(s, router.Close(), nil)
		testkit.Is(s, <-done, nil)
	}
}

func (s *staging) publish(topic string, ids ...string) {
	s.Helper()
	for _, id := range ids {
		testkit.NoError(s, s.broker.Publish(topic, newMessage(id)))
	}
}

// passes runs the router for a time, with messages on the topic orders.
func (s *staging) passes(d time.Duration, ids ...string) {
	s.Helper()
	s.run()
	s.publish("orders", ids...)
	time.Sleep(d)
	s.stop()
}

// lines is a logger that counts its lines at the levels Error and Info.
type lines struct{ testkit.Log }

func (l *lines) all() (all []string) {
	for _, line := range append(l.Lines(watermill.ErrorLogLevel, ""), l.Lines(watermill.InfoLogLevel, "")...) {
		all = append(all, line.String())
	}
	return all
}

// count is how many lines have text in them.
func (l *lines) count(text string) (n int) {
	for _, line := range l.all() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
