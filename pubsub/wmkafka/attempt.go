package wmkafka

import (
	"context"
	"sync"
	"time"
)

// attempt is the context of a message in one delivery. It ends with the group session, and when the message is settled.
// Few handlers wait for its end or derive a context from it, so what that needs is made when it is asked for.
type attempt struct {
	of *recordContext

	mu    sync.Mutex
	over  bool
	ended context.Context // ends with attempt; nil until it is asked for
	end   context.CancelFunc
}

var _ context.Context = (*attempt)(nil)

func (a *attempt) Deadline() (time.Time, bool) { return a.of.Deadline() }

func (a *attempt) Done() <-chan struct{} { return a.endable().Done() }

func (a *attempt) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended != nil:
		return a.ended.Err()
	case a.over:
		return context.Canceled
	}
	return a.of.Err()
}

// Value answers what package context asks of a parent with the context that ends with attempt: a context that is
// derived from attempt starts no goroutine, and context.Cause returns what it returns of any cancelled context. Its key
// is a *int.
func (a *attempt) Value(key any) any {
	if _, ok := key.(*int); ok {
		return a.endable().Value(key)
	}
	return a.of.Value(key)
}

func (a *attempt) endable() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended == nil {
		a.ended, a.end = context.WithCancel(a.of)
		if a.over {
			a.end()
		}
	}
	return a.ended
}

// cancel ends the attempt.
func (a *attempt) cancel() {
	a.mu.Lock()
	end := a.end
	a.over = true
	a.mu.Unlock()
	if end != nil {
		end()
	}
}
