package fleet

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
)

// turn lets one call run at a time.
type turn struct {
	taken chan struct{}             // has one place
	until atomic.Pointer[time.Time] // the request waits whose call it is
}

// call calls f when its turn comes. A call that has outlived the time of its own request may never end: then there is no
// waiting. The context has a deadline.
func (t *turn) call(ctx context.Context, name string, f func() error) error {
	if ctx.Err() != nil {
		return ErrLate
	}
	select {
	case t.taken <- struct{}{}:
	default:
		if until := t.until.Load(); until != nil && !time.Now().Before(*until) {
			return ErrBusy
		}
		select {
		case t.taken <- struct{}{}:
		case <-ctx.Done():
			return ErrLate
		}
	}
	until, _ := ctx.Deadline()
	t.until.Store(&until)
	defer func() {
		t.until.Store(nil)
		<-t.taken
	}()
	return safecall.Call(name, f)
}
