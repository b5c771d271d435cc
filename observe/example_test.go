package observe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/settings"
)

// printer is a Tracer that prints what begins and ends.
type printer struct{}

type name struct{}

func (printer) Begin(ctx context.Context, op observe.Operation) context.Context {
	fmt.Println("attempt on", op.ID, "begins")
	return context.WithValue(ctx, name{}, op.ID)
}

func (printer) End(_ context.Context, op observe.Operation, end observe.Ending) {
	fmt.Printf("attempt on %s ends: %v, %s\n", op.ID, end.Err, end.Verdict.Class)
}

func (printer) Trace(ctx context.Context) string {
	trace, _ := ctx.Value(name{}).(string)
	return trace
}

// A Tracer of your own. A spillway.Channel has the part Trace if Config.Tracer is set.
func ExampleTracer() {
	trace, err := middleware.NewTrace(middleware.TraceConfig{Shared: settings.Shared{Tracer: printer{}}})
	if err != nil {
		panic(err)
	}
	h := trace.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("the handler works in", msg.Context().Value(name{}))
		return nil, errors.New("the bank is down")
	})
	_, _ = h(message.NewMessage("order-7", nil))
	// Output:
	// attempt on order-7 begins
	// the handler works in order-7
	// attempt on order-7 ends: the bank is down, unknown
}
