package chain

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func expired(context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.Background(), time.Unix(1, 0))
}

func cancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(errBoom) // whatever the cause, it was cancelled
	return ctx, func() {}
}

// Feature C1, promise P3: who went away and who did not: only a message cancelled from outside and not acked.
func TestAbortedTable(t *testing.T) {
	for _, row := range []struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		settle  func(*message.Message) bool
		aborted bool
		waits   bool // that WaitContext lets one wait
	}{
		{context.WithCancel, nil, false, true},
		{context.WithCancel, (*message.Message).Ack, false, true},
		{context.WithCancel, (*message.Message).Nack, false, true},
		{cancelled, nil, true, false},
		{cancelled, (*message.Message).Ack, false, true},
		{cancelled, (*message.Message).Nack, true, false},
		{expired, nil, false, false},
		{expired, (*message.Message).Ack, false, true},
		{expired, (*message.Message).Nack, false, false},
	} {
		a := ordinary()
		ctx, cancel := row.context(a.ctx)
		a.msg.SetContext(ctx)
		if row.settle != nil {
			row.settle(a.msg)
		}
		c := begin(a.msg)
		name := fmt.Sprintf("context %v, acked %t, nacked %t", ctx.Err(), c.Acked(), c.Nacked())
		if got := c.Gone(); got != row.aborted {
			t.Errorf("%s: Gone is %t", name, got)
		}
		if got := c.WaitContext().Err() == nil; got != row.waits {
			t.Errorf("%s: WaitContext is alive: %t", name, got)
		}
		c.Release()
		cancel()
	}
}

// Promise P3: the error of a message that went away is a context.Canceled and still what it was, and counts nothing.
func TestAborted(t *testing.T) {
	history := &classify.Failure{Err: errBoom, Attempts: 3, Verdict: classify.Verdict{Class: classify.ClassTransient}}
	for _, cause := range []error{errBoom, fmt.Errorf("handler: %w", errBoom), history, nil} {
		err := Aborted(cause)
		testkit.Check(t, errors.Is(err, context.Canceled) && (cause == nil || errors.Is(err, cause)),
			"Aborted(%v) is %v", cause, err)
		f, ok := errs.Find[*classify.Failure](err)
		testkit.Check(t, ok && f.Verdict.Class == classify.ClassAborted && f.Attempts == 0,
			"Aborted(%v) tells %+v", cause, f)
		again := Aborted(err)
		testkit.Check(t, again == err, "Aborted of an aborted error wraps it again: %v", again)
	}
}

// Promise P3: a message without channels for its ack, as tests and adapters make them, is neither acked nor nacked.
func TestBareMessage(t *testing.T) {
	c := begin(&message.Message{UUID: "bare"})
	testkit.Check(t, !c.Acked() && !c.Nacked() && !c.Gone(), "a bare message is settled before it was settled")
	c.Msg.Ack()
	testkit.Check(t, c.Acked(), "an ack went unseen")
	c.Restore()
	c.Release()
}
