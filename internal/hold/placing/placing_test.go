package placing

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type counted int

func (c *counted) Placing(context.Context, *message.Message) { *c++ }

// Promise P5: a subscriber that cannot go on costs nothing; one that can is called.
func TestBegin(t *testing.T) {
	var called counted
	msg, ctx := message.NewMessage("id", nil), context.WithValue(t.Context(), Key{}, "something else")
	if n := testing.AllocsPerRun(100, func() { Begin(ctx, msg) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if Begin(With(ctx, &called), msg); called != 1 {
		t.Errorf("called %d times", called)
	}
}
