package telemetry

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Config configures Telemetry. The zero value is useful.
type Config struct {
	// TracerProvider makes the spans. Give its SDK a batching processor: a processor that exports in End makes each
	// message wait for the collector. Default: the global one, otel.GetTracerProvider.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the instruments. Use noop.NewMeterProvider of go.opentelemetry.io/otel/metric/noop for none,
	// if package prom has the metrics. Default: the global one, otel.GetMeterProvider.
	MeterProvider metric.MeterProvider
	// Propagator reads what the producer wrote into the metadata of a message. Spillway writes nothing with it.
	// Default: the global one, otel.GetTextMapPropagator, or W3C's traceparent, tracestate and baggage if the global
	// one reads nothing.
	Propagator propagation.TextMapPropagator
	// System is the value of messaging.system, such as "kafka". Default: as the types of subscribers and publishers
	// say.
	System string
	// LinkProducer begins a trace of its own for each delivery of a message, with a link to the producer's span.
	// Default: false, attempts are children of the producer's span, so that one trace has them all. With a span in the
	// context of the message, such as that of a middleware further out, attempts are its children in both cases.
	LinkProducer bool
}

func (c *Config) setDefaults() {
	if safecall.IsNil(c.TracerProvider) {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if safecall.IsNil(c.MeterProvider) {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if safecall.IsNil(c.Propagator) {
		c.Propagator = otel.GetTextMapPropagator()
		if len(c.Propagator.Fields()) == 0 {
			c.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
		}
	}
}
