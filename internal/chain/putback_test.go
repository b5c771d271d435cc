package chain

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Feature I3: the error of a message that is requeued is no failure for any part further out.
func TestRequeued(t *testing.T) {
	err := Requeued(errBoom)
	if !IsAborted(err) || !errors.Is(err, errBoom) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if again := Aborted(err); again != err {
		t.Errorf("told twice: %v", again)
	}
	if o := OutcomeOf(err); o.Next != Requeue || o.Why != err {
		t.Error(o)
	}
}

// Feature I4: who asked to be told of the publishing is told once, in the order of asking.
func TestPublished(t *testing.T) {
	c := begin(ordinary().msg)
	var told []int
	for i := range 2 {
		c.OnPublished(func() { told = append(told, i) })
	}
	c.Published()
	c.Published()
	if len(told) != 2 || told[0] != 0 || told[1] != 1 {
		t.Errorf("told %v", told)
	}
}

// Feature I3: so it is for a chain further out, where parts are middlewares of their own.
func TestRequeueThroughChains(t *testing.T) {
	requeues := func(Handler) Handler {
		return func(c *Call) ([]*message.Message, Outcome) { return nil, OutcomeOf(Requeued(errBoom)) }
	}
	var seen Next
	asks := func(next Handler) Handler {
		return func(c *Call) ([]*message.Message, Outcome) {
			out, o := next(c)
			seen = o.Next
			o.Why = fmt.Errorf("wrapped: %w", o.Why)
			return out, o
		}
	}
	inner := Enter(requeues)(nil)
	if _, err := Enter(asks)(inner)(ordinary().msg); seen != Requeue || !errors.Is(err, errBoom) {
		t.Errorf("%s: %v", seen, err)
	}
	seen = Done
	if _, _ = Enter(asks)(Enter(asks)(inner))(ordinary().msg); seen != Requeue {
		t.Errorf("%s after two chains", seen)
	}
	boom := func(*message.Message) ([]*message.Message, error) { return nil, errBoom }
	if _, _ = Enter(asks)(boom)(ordinary().msg); seen != Failed {
		t.Errorf("a failure is %s", seen)
	}
}
