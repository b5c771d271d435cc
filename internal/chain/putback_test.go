package chain

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/causes"
)

// Feature I3: a message that a part puts back has gone away, for every part further out, and its error is no failure.
func TestPutBack(t *testing.T) {
	a := ordinary()
	c := begin(a.msg)
	if c.Aborted() {
		t.Error("aborted before")
	}
	err := c.PutBack(errBoom)
	failure, ok := causes.Find[*classify.Failure](err)
	if !c.Aborted() || !ok || failure.Verdict.Class != classify.ClassAborted || !errors.Is(err, errBoom) || !errors.Is(err, context.Canceled) {
		t.Errorf("aborted %t: %v", c.Aborted(), err)
	}
	if again := c.Abort(err); again != err {
		t.Errorf("told twice: %v", again)
	}
	c.Release()
	if c := begin(a.msg); c.Aborted() {
		t.Error("the next message of the pool was put back too")
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

// Feature I3: so it has for a chain further out, where parts are middlewares of their own.
func TestPutBackThroughChains(t *testing.T) {
	puts := func(Handler) Handler {
		return func(c *Call) ([]*message.Message, error) { return nil, c.PutBack(errBoom) }
	}
	var aborted bool
	asks := func(next Handler) Handler {
		return func(c *Call) ([]*message.Message, error) {
			out, err := next(c)
			aborted = c.Aborted()
			return out, fmt.Errorf("wrapped: %w", err)
		}
	}
	inner := Enter(puts)(nil)
	if _, err := Enter(asks)(inner)(ordinary().msg); !aborted || !errors.Is(err, errBoom) {
		t.Errorf("aborted %t: %v", aborted, err)
	}
	aborted = false
	if _, _ = Enter(asks)(Enter(asks)(inner))(ordinary().msg); !aborted {
		t.Error("lost on the way through two chains")
	}
	if _, _ = Enter(asks)(func(*message.Message) ([]*message.Message, error) { return nil, errBoom })(ordinary().msg); aborted {
		t.Error("a failure is taken for a message put back")
	}
}
