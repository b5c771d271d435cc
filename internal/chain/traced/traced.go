// Package traced calls an observe.Tracer, whose panics change nothing.
package traced

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/observe"
)

// By is a Tracer, or none, and who hears of its panics. Its methods do nothing without a Tracer.
type By struct {
	Tracer observe.Tracer
	Logger watermill.LoggerAdapter
}

// Begin returns the context in which the operation runs, and whether the operation began. If it did not, because the
// Tracer panicked, End must not be called: what it would end is not the operation.
func (b By) Begin(ctx context.Context, op *observe.Operation) (in context.Context, began bool) {
	if b.Tracer == nil {
		return ctx, false
	}
	defer func() {
		if !began {
			in = ctx
			b.panicked("Begin", recover())
		}
	}()
	if in = b.Tracer.Begin(ctx, *op); in == nil {
		in = ctx
		return ctx, false
	}
	return in, true
}

// End ends the operation of the context that Begin returned.
func (b By) End(in context.Context, op *observe.Operation, end observe.Ending) {
	if b.Tracer == nil {
		return
	}
	defer func() { b.panicked("End", recover()) }()
	b.Tracer.End(in, *op, end)
}

// Trace returns the text that identifies the operation of the context that Begin returned.
func (b By) Trace(in context.Context) string {
	if b.Tracer == nil {
		return ""
	}
	defer func() { b.panicked("Trace", recover()) }()
	return b.Tracer.Trace(in)
}

// panicked logs a panic, as safecall.Hook does, which costs a success more.
func (b By) panicked(method string, v any) {
	if v != nil {
		safecall.Hook(b.Logger, "observe.Tracer."+method, func() { panic(v) })
	}
}

// errUnfinished ends an operation whose function did not return.
var errUnfinished = errors.New("the publisher did not return")

// Publish calls publish as an operation. With a Tracer, publish gets the context and the trace that the message is to
// carry, otherwise ctx and "".
func (b By) Publish(ctx context.Context, op *observe.Operation,
	publish func(ctx context.Context, trace string) error) error {
	return b.PublishMasked(ctx, op, nil, publish)
}

// PublishMasked is Publish with the text of an error as text returns it.
func (b By) PublishMasked(ctx context.Context, op *observe.Operation, text func(error) string,
	publish func(ctx context.Context, trace string) error) (err error) {
	if b.Tracer == nil {
		return publish(ctx, "")
	}
	in, began := b.Begin(ctx, op)
	if !began {
		return publish(ctx, "")
	}
	err = errUnfinished
	defer func() {
		end := observe.Ending{Err: err}
		if err != nil && text != nil {
			end.Text = text(err)
		}
		b.End(in, op, end)
	}()
	err = publish(in, b.Trace(in))
	return err
}
