package main

import (
	"io"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/observe/telemetry"
)

// tracedHappyPath is what tracing adds to a success that is not sampled: of a message without a trace, and of one with
// its producer's. Measured are the instruments of OpenTelemetry, without spans.
func tracedHappyPath(to io.Writer) error {
	var plain, out, given, measured int64
	medians, err := harness.Alternate(rounds, side(happySpillway, &plain), side(happySampledOut, &out),
		side(happySampledOutGiven, &given), side(happyMeasured, &measured))
	if err != nil {
		return err
	}
	return harness.Print(to, "observed_happy_path", harness.Figure{
		"by": "opentelemetry", "spillway_ns": harness.Hundredths(medians[0]),
		"sampled_out_added_ns": harness.Hundredths(medians[1] - medians[0]), "sampled_out_added_allocs": out - plain,
		"given_trace_added_ns": harness.Hundredths(medians[2] - medians[0]), "given_trace_added_allocs": given - plain,
		"instruments_added_ns":     harness.Hundredths(medians[3] - medians[0]),
		"instruments_added_allocs": measured - plain,
	})
}

// followed is a channel with telemetry.
func followed(b *testing.B, config telemetry.Config) spillway.Config {
	observed, err := telemetry.New(config)
	if err != nil {
		b.Fatal(err)
	}
	return spillway.Config{Observers: []spillway.Observer{observed}}
}

func sampledOut(b *testing.B) spillway.Config {
	return followed(b, telemetry.Config{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))),
		MeterProvider:  metricnoop.NewMeterProvider(),
	})
}

func happySampledOut(b *testing.B) { happy(b, sampledOut(b)) }

func happySampledOutGiven(b *testing.B) {
	config := sampledOut(b)
	config.Publisher = &nowhere{}
	channel, err := spillway.New(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	h := channel.Middleware(succeed)
	run(b, func(msg *message.Message) ([]*message.Message, error) {
		if msg.Metadata["traceparent"] == "" {
			msg.Metadata["traceparent"] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
		}
		return h(msg)
	})
}

func happyMeasured(b *testing.B) {
	reader := sdkmetric.NewManualReader()
	channel := followed(b, telemetry.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	channel.Observers = append(channel.Observers, withoutSpans{})
	happy(b, channel)
}

// withoutSpans is an Observer that takes the Tracer of those before it unavailable.
type withoutSpans struct{}

func (withoutSpans) Observe(config *spillway.Config) error {
	config.Tracer = nil
	return nil
}
