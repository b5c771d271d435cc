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
