// Package lifecycle tells what runs beside the handlers of a router when the first of them begins and when the last has ended.
//
// Watermill runs a plugin when a router starts, and tells it nothing of the end. What the router does wait for, when it
// stops, is that each handler's publisher is closed, after the handler's last message was received; a consumer's
// publisher, which publishes nothing, is closed too. So a Lifecycle decorates publishers, and passes what they publish by.
package lifecycle

import (
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Lifecycle follows the handlers of routers, of any number and one after another.
type Lifecycle struct {
	start func() error
	stop  func()

	mu       sync.Mutex
	handlers int
}

// New returns a Lifecycle that calls start before a handler subscribes while no other runs, and stop after the last one has
// received its last message, before Router.Close and Router.Run return. Handlers may be at their last messages still.
// The error of start is that of Router.Run. The two are never called at the same time. Where Run fails half-way it does not
// wait for the handlers that it started, and so not for stop either.
func New(start func() error, stop func()) *Lifecycle { return &Lifecycle{start: start, stop: stop} }

// Plugin is a message.RouterPlugin that follows the router's handlers, those added later too.
func (l *Lifecycle) Plugin(router *message.Router) error {
	if router == nil {
		return errors.New("life: the router is nil")
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
