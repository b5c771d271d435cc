package observe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe"
)

// printer is a Tracer that prints what begins and ends.
type printer struct{}

type name struct{}

var words = map[observe.Kind]string{observe.Attempt: "attempt on", observe.DeadLetter: "dead letter of"}

func (printer) Begin(ctx context.Context, op observe.Operation) context.Context {
	fmt.Println(words[op.Kind], op.ID, "begins")
	return context.WithValue(ctx, name{}, op.ID)
}

func (printer) End(_ context.Context, op observe.Operation, end observe.Ending) {
	fmt.Printf("%s %s ends: %v, %s\n", words[op.Kind], op.ID, end.Err, end.Verdict.Class)
}

func (printer) Trace(ctx context.Context) string {
	trace, _ := ctx.Value(name{}).(string)
	return trace
}

// nowhere takes dead letters.
type nowhere struct{}

func (nowhere) Publish(string, ...*message.Message) error { return nil }

func (nowhere) Close() error { return nil }

// A Tracer of your own follows each attempt, and each publishing of a dead letter.
func ExampleTracer() {
	channel, err := spillway.New(context.Background(), spillway.Config{
		Publisher: nowhere{},
		Retry:     middleware.RetryConfig{Attempts: 1},
		Tracer:    printer{},
	})
	if err != nil {
		panic(err)
	}
	h := channel.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("the handler works in", msg.Context().Value(name{}))
		return nil, errors.New("the bank is down")
	})
	_, _ = h(message.NewMessage("order-7", nil))
	// Output:
	// attempt on order-7 begins
	// the handler works in order-7
	// attempt on order-7 ends: the bank is down, unknown
	// dead letter of order-7 begins
	// dead letter of order-7 ends: <nil>, unknown
}
