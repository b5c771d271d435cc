package lifecycle

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// follower decorates the publishers and subscribers of one router. The router decorates one handler after another.
type follower struct {
	life   *Lifecycle
	latest *handler
}

// handler lives from its subscription until its publisher is closed. The subscription is the last step of a router that
// may fail. If a decorator around ours fails after ours has subscribed, the handler stays alive.
type handler struct {
	life *Lifecycle

	mu    sync.Mutex
	lives bool
}

// begin reports whether the handler began to live just now.
func (h *handler) begin() (began bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lives {
		return false, nil
	}
	if err := h.life.begin(); err != nil {
		return false, err
	}
	h.lives = true
	return true, nil
}

func (h *handler) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lives {
		h.lives = false
		h.life.end()
	}
}

func (f *follower) publisher(pub message.Publisher) (message.Publisher, error) {
	if pub == nil {
		pub = none{}
	}
	f.latest = &handler{life: f.life}
	return &publisher{pub, f.latest}, nil
}

func (f *follower) subscriber(sub message.Subscriber) (message.Subscriber, error) {
	return &subscriber{sub, f.latest}, nil
}

type subscriber struct {
	message.Subscriber
	handler *handler
}

// Subscribe ends the handler if it fails: the router does not close the publisher then.
func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	began, err := s.handler.begin()
	if err != nil {
		return nil, err
	}
	messages, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil && began {
		s.handler.end() // a decorator may try again
	}
	return messages, err
}

type publisher struct {
	message.Publisher
	handler *handler
}

// Close is called when the handler has received its last message.
func (p *publisher) Close() error {
	defer p.handler.end()
	return p.Publisher.Close()
}

// none is the publisher of a handler that was added without one.
type none struct{}

func (none) Close() error { return nil }

func (none) Publish(string, ...*message.Message) error {
	return errors.New("the handler returned messages, but was added without a publisher: add it with one")
}
