// Package life tells what runs beside the handlers of a router when the first of them begins and when the last has ended.
//
// Watermill runs a plugin when a router starts, and tells it nothing of the end. What the router does wait for, when it
// stops, is that each handler's publisher is closed, after the handler's last message was received; a consumer's
// publisher, which publishes nothing, is closed too. So a Life decorates publishers, and passes what they publish by.
package life

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Life follows the handlers of routers, of any number and one after another.
type Life struct {
	start func() error
	stop  func()

	mu       sync.Mutex
	handlers int
	latest   *publisher // of the handler that is being started
}

// New returns a Life that calls start before a handler subscribes while no other runs, and stop after the last one has
// received its last message, before Router.Close and Router.Run return. Handlers may be at their last messages still.
// The error of start is that of Router.Run. The two are never called at the same time.
func New(start func() error, stop func()) *Life { return &Life{start: start, stop: stop} }

// Plugin is a message.RouterPlugin that follows the router's handlers, those added later too.
func (l *Life) Plugin(router *message.Router) error {
	router.AddPublisherDecorators(l.decorate)
	router.AddSubscriberDecorators(l.subscribing)
	return nil
}

func (l *Life) decorate(pub message.Publisher) (message.Publisher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handlers == 0 {
		if err := l.start(); err != nil {
			return nil, err
		}
	}
	l.handlers++
	if pub == nil {
		pub = none{}
	}
	l.latest = &publisher{Publisher: pub, life: l}
	return l.latest, nil
}

// subscribing ends a handler that cannot subscribe: nobody closes its publisher. A router decorates the publisher and the
// subscriber of one handler after another.
func (l *Life) subscribing(sub message.Subscriber) (message.Subscriber, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &subscriber{sub, l.latest}, nil
}

type subscriber struct {
	message.Subscriber
	handler *publisher
}

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	messages, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		s.handler.once.Do(s.handler.life.end)
	}
	return messages, err
}

type publisher struct {
	message.Publisher
	life *Life
	once sync.Once
}

// Close is called by the router when the handler has received its last message.
func (p *publisher) Close() error {
	defer p.once.Do(p.life.end)
	return p.Publisher.Close()
}

func (l *Life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handlers--; l.handlers == 0 {
		l.stop()
	}
}

// none is the publisher of a handler that was added without one.
type none struct{}

func (none) Close() error { return nil }

func (none) Publish(string, ...*message.Message) error {
	return errors.New("the handler produced messages and was added without a publisher")
}
