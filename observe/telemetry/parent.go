package telemetry

import (
	"context"
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const baggageKey = "baggage" // of W3C

// producers reads the span of a message's producer.
type producers struct {
	propagator propagation.TextMapPropagator
	w3c        bool // the propagator is that of W3C, whose usual traceparent is read here in half the time
}

func producersBy(p propagation.TextMapPropagator) producers {
	trace := propagation.TraceContext{}
	return producers{propagator: p, w3c: p == propagation.TextMapPropagator(trace) ||
		reflect.DeepEqual(p, propagation.NewCompositeTextMapPropagator(trace, propagation.Baggage{}))}
}

// extract returns ctx with what the producer wrote.
func (p producers) extract(ctx context.Context, from message.Metadata) context.Context {
	if p.w3c && from[stateKey] == "" && from[baggageKey] == "" {
		parent := from[parentKey]
		if parent == "" {
			return ctx
		}
		if span, ok := parentOf(parent); ok {
			return trace.ContextWithRemoteSpanContext(ctx, span)
		}
	}
	return p.propagator.Extract(ctx, propagation.MapCarrier(from))
}

// parentOf reads a traceparent of version 00 that is sampled, or not, and has no other flags.
func parentOf(text string) (trace.SpanContext, bool) {
	const traceID, spanID, flags, size = 3, 36, 53, 55
	if len(text) != size || text[:traceID] != "00-" || text[spanID-1] != '-' || text[flags-1] != '-' ||
		text[flags] != '0' ||
		text[flags+1] != '0' && text[flags+1] != '1' {
		return trace.SpanContext{}, false
	}
	c := trace.SpanContextConfig{TraceFlags: trace.TraceFlags(text[flags+1] - '0'), Remote: true}
	if !unhex(c.TraceID[:], text[traceID:]) || !unhex(c.SpanID[:], text[spanID:]) {
		return trace.SpanContext{}, false
	}
	span := trace.NewSpanContext(c)
	return span, span.IsValid()
}

// unhex reads digits of lower case.
func unhex(to []byte, text string) bool {
	for i := range to {
		high, low := digits[text[2*i]], digits[text[2*i+1]]
		if high > 15 || low > 15 {
			return false
		}
		to[i] = high<<4 | low
	}
	return true
}

var digits = func() (of [256]byte) {
	for c := range of {
		of[c] = 255
	}
	for value, c := range "0123456789abcdef" {
		of[c] = byte(value)
	}
	return of
}()

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
