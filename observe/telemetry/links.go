package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const (
	parentKey, stateKey = "traceparent", "tracestate" // of W3C
	// maxLink is the longest text that is read: a traceparent, and a tracestate of the 512 characters that W3C asks
	// for.
	maxLink = 1 << 10
)

// format returns a span in the form of W3C's traceparent, and its tracestate after a space.
func format(span trace.SpanContext) string {
	if !span.IsValid() {
		return ""
	}
	w3c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), span), w3c)
	if state := w3c[stateKey]; state != "" && len(state) < maxLink/2 {
		return w3c[parentKey] + " " + state
	}
	return w3c[parentKey]
}

// parse reads what format returned. A text that anyone else made is not valid, or names a span of theirs.
func parse(text string) trace.SpanContext {
	if text == "" || len(text) > maxLink {
		return trace.SpanContext{}
	}
	parent, state, _ := strings.Cut(text, " ")
	ctx := propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{parentKey: parent, stateKey: state})
	return trace.SpanContextFromContext(ctx)
}
