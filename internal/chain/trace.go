package chain

import "context"

type traceKey struct{}

// WithTrace returns ctx with the Trace of an attempt, for what is published because of the attempt. See Call.Trace.
func WithTrace(ctx context.Context, trace string) context.Context {
	if trace == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, trace)
}

// TraceOf returns the Trace of the attempt that what has this context is published because of, or "".
func TraceOf(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	return trace
}
