package telemetry

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature O2: whatever a producer wrote, its span is the one that the propagator reads.
func TestParentIsThePropagators(t *testing.T) {
	const usual = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	texts := []string{"", usual, usual + "-", usual + "0", strings.ToUpper(usual), "00-" + strings.Repeat("0", 32) + usual[35:],
		usual[:36] + strings.Repeat("0", 16) + "-01"}
	for at := range usual {
		for _, c := range []string{"0", "1", "2", "3", "8", "f", "F", "g", "-", " ", "\xff", ""} {
			texts = append(texts, usual[:at]+c+usual[at+1:])
		}
	}
	baggage := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	for _, p := range []propagation.TextMapPropagator{baggage, propagation.TraceContext{}} {
		own := producersBy(p)
		testkit.Require(t, own.w3c, "%T is not known", p)
		for _, text := range texts {
			for _, state := range []string{"", "a=b"} {
				from := message.Metadata{parentKey: text, stateKey: state, baggageKey: state}
				got, want := own.extract(t.Context(), from), p.Extract(t.Context(), propagation.MapCarrier(from))
				own, its := trace.SpanContextFromContext(got), trace.SpanContextFromContext(want)
				testkit.Check(t, own.Equal(its), "%T of %q: %v, want %v", p, text, own, its)
			}
		}
	}
	composite := propagation.NewCompositeTextMapPropagator(propagation.Baggage{}, other{})
	testkit.Check(t, !producersBy(composite).w3c && !producersBy(other{}).w3c, "another propagator is taken for W3C's")
}

type other struct{ propagation.TraceContext }

func (other) Extract(ctx context.Context, _ propagation.TextMapCarrier) context.Context { return ctx }
