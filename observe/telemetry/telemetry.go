package telemetry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.27.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/internal/series"
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
		series.NewFew(maxValues, maxValue, nil), config.system)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t := &Telemetry{config: config, meters: meters}
	t.spans = tracer{config: config, tracer: config.TracerProvider.Tracer(scope,
		trace.WithSchemaURL(semconv.SchemaURL)),
		places: &series.Places[where]{}, meters: meters}
	return t, nil
}

var _ spillway.Observer = (*Telemetry)(nil)

// Observe is called by spillway.New, for a Telemetry in Config.Observers. It sets the Tracer of config, and puts the
// measurements before its hooks. Parts that config leaves out stay out.
func (t *Telemetry) Observe(config *spillway.Config) error {
	channel := t.spans
	channel.origin = config.Queue.Origin
	channel.places = &series.Places[where]{} // another channel has another broker
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
	// System is the value of messaging.system, such as "kafka". Default: as the types of subscribers and publishers
	// say.
	System string
	// LinkProducer begins a trace of its own for each delivery of a message, with a link to the producer's span.
	// Default: false, attempts are children of the producer's span, so that one trace has them all. With a span in the
	// context of the message, such as that of a middleware further out, attempts are its children in both cases.
	LinkProducer bool

	// propagator reads what the producer wrote into the metadata of a message. Spillway writes nothing with it. It is
	// the global one, or W3C's traceparent, tracestate and baggage if the global one reads nothing.
	propagator propagation.TextMapPropagator
}

func (c *Config) setDefaults() {
	if safecall.IsNil(c.TracerProvider) {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if safecall.IsNil(c.MeterProvider) {
		c.MeterProvider = otel.GetMeterProvider()
	}
	c.propagator = otel.GetTextMapPropagator()
	if len(c.propagator.Fields()) == 0 {
		c.propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
}

// instruments are those of the conventions, and those of Spillway, which have the names, labels and meanings of package
// prom.
type instruments struct {
	labels *series.Few
	system func(typ string) string // of messaging.system
	off    bool                    // all do nothing

	process, operation metric.Float64Histogram
	consumed, sent     metric.Int64Counter
	attempts           metric.Int64Counter
	counters           map[*series.Series]metric.Int64Counter
	histograms         map[*series.Series]metric.Float64Histogram

	places series.Places[measured]
}

// seconds are the bounds that the conventions advise for durations.
var seconds = metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10)

func newInstruments(meter metric.Meter, labels *series.Few, system func(string) string) (*instruments, error) {
	i := &instruments{labels: labels, system: system, counters: map[*series.Series]metric.Int64Counter{},
		histograms: map[*series.Series]metric.Float64Histogram{}}
	var failed []error
	counter := func(into *metric.Int64Counter, name, unit, help string) {
		made, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		*into, failed = made, append(failed, err)
	}
	histogram := func(into *metric.Float64Histogram, name, help string, bounds metric.HistogramOption) {
		made, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), bounds)
		*into, failed = made, append(failed, err)
	}
	histogram(&i.process, "messaging.process.duration", "Duration of processing operation.", seconds)
	histogram(&i.operation, "messaging.client.operation.duration", "Duration of messaging operation initiated by a "+
		"producer or consumer client.", seconds)
	counter(&i.consumed, "messaging.client.consumed.messages", "{message}",
		"Number of messages that were delivered to "+
			"the application.")
	counter(&i.sent, "messaging.client.sent.messages", "{message}", "Number of messages producer attempted to send to "+
		"the broker.")

	counter(&i.attempts, "spillway.attempts", "",
		"Calls of handlers, by their outcome: success, or the class of the error.")
	for _, s := range series.All {
		if s.Bounds == nil {
			var made metric.Int64Counter
			counter(&made, "spillway."+strings.TrimSuffix(s.Name, "_total"), "", s.Help)
			i.counters[s] = made
			continue
		}
		var made metric.Float64Histogram
		histogram(&made, "spillway."+strings.TrimSuffix(s.Name, "_seconds"), s.Help,
			metric.WithExplicitBucketBoundaries(s.Bounds...))
		i.histograms[s] = made
	}
	_, i.off = i.process.(noop.Float64Histogram)
	return i, errors.Join(failed...)
}

// sending measures a publishing, or a settlement.
func (i *instruments) sending(ctx context.Context, system string, op *observe.Operation, elapsed float64, err error) {
	name, typ := "send", operationTypeSend
	if op.Kind == observe.Settle {
		name, typ = "settle", semconv.MessagingOperationTypeSettle
	}
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(i.labels.Of("system", system)), semconv.MessagingOperationName(name),
		semconv.MessagingDestinationName(i.labels.Of("destination", op.To)),
	}
	if err != nil {
		attributes = append(attributes, semconv.ErrorTypeKey.String(i.labels.Of("type", errorType(err))))
	}
	if op.Kind != observe.Settle {
		i.sent.Add(ctx, 1, metric.WithAttributes(attributes...))
	}
	i.operation.Record(ctx, elapsed, metric.WithAttributes(append(attributes, typ)...))
}

// The attributes that the conventions of OpenTelemetry lack. They have the names and values of the metrics and of the
// log's fields.
const (
	operationKey = attribute.Key("spillway.operation")
	topicKey     = attribute.Key("spillway.topic")
	handlerKey   = attribute.Key("spillway.handler")
	outcomeKey   = attribute.Key("spillway.outcome")
	classKey     = attribute.Key("spillway.class")
	reasonKey    = attribute.Key("spillway.reason")
	causeKey     = attribute.Key("spillway.cause")
	stageKey     = attribute.Key("spillway.stage")
	attemptKey   = attribute.Key("spillway.attempt")
	attemptsKey  = attribute.Key("spillway.attempts")
	redrivesKey  = attribute.Key("spillway.redrive.count")
)

// operationTypeSend is what newer conventions call the type "publish". An older semconv keeps the versions that users
// need low.
var operationTypeSend = semconv.MessagingOperationTypeKey.String("send")

// operations are the values of spillway.operation.
var operations = map[observe.Kind]string{
	observe.Attempt: "attempt", observe.Stage: "stage", observe.DeadLetter: "dead_letter", observe.Redrive: "redrive",
	observe.Park: "park", observe.Settle: "settle",
}

const (
	maxValues = 200 // of each attribute of an instrument; all others are "other"
	maxValue  = 200 // of what a message or an application names, in characters
	maxText   = 1 << 10
	maxDepth  = 16 // of causes
)

// clean makes a value that each exporter takes: few characters, UTF-8, one line.
func clean(value string) string { return series.Text(value, maxValue) }

// wrappers are the types of errors that say nothing of their own.
var wrappers = map[string]bool{"*errors.joinError": true, "*classify.marked": true, "*classify.Failure": true,
	"*privacy.maskedError": true}

// errorType returns the type of err without the wrappers of fmt and errors, and without marks, failures and masks of
// Spillway.
func errorType(err error) (name string) {
	depth := 0
	for one := range errs.First(err) {
		name = reflect.TypeOf(one).String()
		if depth++; depth == maxDepth || !strings.HasPrefix(name, "*fmt.wrapError") && !wrappers[name] {
			break
		}
	}
	return name
}
