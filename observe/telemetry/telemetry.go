package telemetry

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.27.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/observing"
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

// New returns a Telemetry. It returns an error that names the field of config that is wrong, or that of the
// MeterProvider.
func New(config Config) (*Telemetry, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	meters, err := newInstruments(config.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)),
		few.New(config.MaxValues, maxValue, nil), config.system)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t := &Telemetry{config: config, meters: meters}
	t.spans = tracer{config: config, tracer: config.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
		places: newPlaces(), meters: meters}
	return t, nil
}

// Observe traces and measures what the channel of config does. Call it before spillway.New, which sets the Tracer, and
// puts the measurements before the hooks that config has then. Parts that config leaves out stay out. A second Observe
// of one config is an error, as everything would count twice.
func (t *Telemetry) Observe(config *spillway.Config) error {
	if t == nil {
		return errors.New("telemetry: Observe: the Telemetry is nil: check the error of New")
	}
	return observing.Observe("telemetry", config, t, t.hooks)
}

// hooks sets the Tracer of config, and puts the measurements before its hooks.
func (t *Telemetry) hooks(config *spillway.Config) {
	channel := t.spans
	channel.origin = config.Queue.Origin
	channel.places = newPlaces() // another channel has another broker
	config.Tracer = &channel
	t.meters.observe(config)
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
