package telemetry

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.27.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/internal/few"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// scope is the name of the instrumentation.
const scope = "github.com/watermill-spillway/spillway/observe/telemetry"

// Telemetry makes spans and measurements of what channels and redrives do. It is safe for concurrent use, by any number
// of channels.
type Telemetry struct {
	config Config
	spans  tracer
	meters *instruments
}

// New returns a Telemetry. It returns the error of the MeterProvider.
func New(config Config) (*Telemetry, error) {
	config.setDefaults()
	meters, err := newInstruments(config.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)),
		few.New(maxValues, maxValue, nil), config.system)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t := &Telemetry{config: config, meters: meters}
	t.spans = tracer{config: config, tracer: config.TracerProvider.Tracer(scope,
		trace.WithSchemaURL(semconv.SchemaURL)),
		producers: producersBy(config.Propagator), places: newPlaces(), meters: meters}
	return t, nil
}

var _ spillway.Observer = (*Telemetry)(nil)

// Observe is called by spillway.New, for a Telemetry in Config.Observers. It sets the Tracer of config, and puts the
// measurements before its hooks. Parts that config leaves out stay out.
func (t *Telemetry) Observe(config *spillway.Config) error {
	channel := t.spans
	channel.origin = config.Queue.Origin
	channel.places = newPlaces() // another channel has another broker
	config.Tracer = &channel
	t.meters.observe(config)
	return nil
}

// Redrives returns hooks for redrive.NewHandler, Drain and DrainTopic with the Tracer. They measure, and then call
// hooks.
func (t *Telemetry) Redrives(hooks redrive.Hooks) redrive.Hooks {
	hooks.Tracer = t.Tracer()
	return t.meters.redrives(hooks)
}

// Tracer returns the Tracer for parts that are configured one by one, and for campaigns.Config.
func (t *Telemetry) Tracer() observe.Tracer { return &t.spans }

// originOf is QueueConfig.Origin: what the broker knows of a message.
type originOf func(*message.Message) poison.Origin

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
