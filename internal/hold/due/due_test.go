package due_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/hold/due"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stage and its subscriber meet in the context of Subscribe.
func Example() {
	ctx := due.With(context.Background(), due.Stage{
		Delay: time.Minute,
		Until: func(_ *message.Message, arrived time.Time) time.Time { return arrived.Add(time.Minute) },
		Take:  func(msg *message.Message) { msg.Ack() },
	})

	stage := due.Of(ctx) // in the subscriber
	msg, arrived := message.NewMessage("1", nil), time.Now()
	fmt.Println("hold for", stage.Until(msg, arrived).Sub(arrived))
	msg.SetContext(due.WithArrived(msg.Context(), arrived))
	stage.Take(msg)
	<-msg.Acked()
	// Output: hold for 1m0s
}

func TestWithout(t *testing.T) {
	if due.Of(t.Context()) != nil {
		t.Error("a stage in a context without one")
	}
	then := time.Now().Add(-time.Hour)
	if got := due.Arrived(due.WithArrived(t.Context(), then)); !got.Equal(then) {
		t.Errorf("arrived %s", got)
	}
	if got := due.Arrived(t.Context()); time.Since(got) > time.Minute {
		t.Errorf("arrived %s, not now", got)
	}
}
