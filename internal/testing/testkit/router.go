package testkit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// RunRouter runs a router to which add adds handlers, and returns when it has started. Stop closes it and is called at
// the end of the test in any case; an error of Close or Run fails the test. The router waits for handlers as long as
// Patience.
func RunRouter(t testing.TB, logger watermill.LoggerAdapter, add func(*message.Router)) (stop func()) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: Patience}, logger)
	if err != nil {
		t.Fatal(err)
	}
	add(router)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	stop = sync.OnceFunc(func() {
		if err := errors.Join(router.Close(), <-ended); err != nil {
			t.Errorf("the router ended with: %v", err)
		}
	})
	select {
	case <-router.Running():
	case err := <-ended:
		t.Fatalf("the router did not start: %v", err)
	}
	t.Cleanup(stop)
	return stop
}

// Starts runs a router until it has started, and returns the error with which it did not.
func Starts(t testing.TB, router *message.Router) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-router.Running():
			_ = router.Close()
		case <-ctx.Done():
		}
	}()
	return router.Run(ctx)
}

// Contained runs a handler that may panic, or end its goroutine.
func Contained(h message.HandlerFunc, msg *message.Message) (out []*message.Message, err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = recover() }()
		out, err = h(msg)
	}()
	<-ended
	return out, err
}

// Kept is a publisher that keeps what it takes.
type Kept struct {
	mu    sync.Mutex
	taken []*message.Message
}

// Publish takes messages, as they are, on whatever topic.
func (k *Kept) Publish(_ string, messages ...*message.Message) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken = append(k.taken, messages...)
	return nil
}

// Close does nothing.
func (*Kept) Close() error { return nil }

// Taken returns the messages in order.
func (k *Kept) Taken() []*message.Message {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.taken)
}

// Nowhere is a publisher that takes everything.
type Nowhere struct{}

func (Nowhere) Publish(string, ...*message.Message) error { return nil }
func (Nowhere) Close() error                              { return nil }
