package testkit

import (
	"context"
	"sync"
)

// Expiring returns a context that ends with context.DeadlineExceeded when expire is called. So a test decides in what
// state a deadline finds the code, where a time-out of some milliseconds leaves that to the machine.
func Expiring(parent context.Context) (ctx context.Context, expire func()) {
	e := &expiring{Context: parent, done: make(chan struct{})}
	return e, sync.OnceFunc(func() { close(e.done) })
}

type expiring struct {
	context.Context
	done chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.done }

func (e *expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
