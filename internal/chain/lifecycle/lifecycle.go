// Package lifecycle starts what runs beside the handlers of a router before the first handler, and stops it after the
// last.
//
// Watermill runs a plugin when a router starts, and has nothing for the end. But a router that stops waits until the
// publisher of each handler is closed, after the handler's last message. Handlers without outputs have a publisher too.
// So a Lifecycle decorates publishers, and passes their messages through.
package lifecycle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Lifecycle follows the handlers of any number of routers.
type Lifecycle struct {
	start func() error
	stop  func()

	mu       sync.Mutex
	handlers int
}

// New returns a Lifecycle. It calls start before a handler subscribes while no other handler runs. It calls stop after
// the last handler has received its last message, which may still be in work, and before Router.Close and Router.Run
// return. It never calls both at the same time.
//
// Router.Run returns the error of start. If Run fails half-way, it does not wait for the handlers that it started, nor
// for stop.
func New(start func() error, stop func()) *Lifecycle { return &Lifecycle{start: start, stop: stop} }

// Run returns a Lifecycle of run, which works beside the handlers. When the last handler has received its last message,
// the context of run ends, and the router's end waits until run has returned.
func Run(run func(ctx context.Context)) *Lifecycle {
	var (
		stop context.CancelFunc
		done chan struct{}
	)
	return New(func() error {
		var ctx context.Context
		ctx, stop = context.WithCancel(context.Background())
		ended := make(chan struct{})
		done = ended
		go func() {
			defer close(ended)
			run(ctx)
		}()
		return nil
	}, func() {
		stop()
		<-done
	})
}

// Plugin is a message.RouterPlugin that follows the router's handlers, also those that are added later.
func (l *Lifecycle) Plugin(router *message.Router) error {
	if router == nil {
		return errors.New("spillway: the plugin's router is nil")
	}
	f := &follower{life: l}
	router.AddPublisherDecorators(f.publisher)
	router.AddSubscriberDecorators(f.subscriber)
	return nil
}

func (l *Lifecycle) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handlers == 0 {
		if err := l.start(); err != nil {
			return err
		}
	}
	l.handlers++
	return nil
}

func (l *Lifecycle) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handlers--; l.handlers == 0 {
		l.stop()
	}
}

// Needed is embedded by an observer that does nothing without a Plugin of its own.
type Needed struct{ added atomic.Bool }

func (n *Needed) needed() *Needed { return n }

// Added says that a router has the Plugin.
func Added(n *Needed) { n.added.Store(true) }

// Misses reports whether no router has the Plugin that the observer needs.
func Misses(observer any) bool {
	o, ok := observer.(interface{ needed() *Needed })
	return ok && !o.needed().added.Load()
}

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
