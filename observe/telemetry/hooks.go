package telemetry

import (
	"context"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.27.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/internal/series"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// observe measures what the channel of config does, on its hooks. Without a meter it leaves them as they are.
func (i *instruments) observe(config *spillway.Config) {
	if i.off {
		return
	}
	retry := &config.Retry.Hooks
	retry.OnAttempt = series.Before(i.attempt, retry.OnAttempt)
	series.Channel(config, i.to)
}

// redrives measures, and then calls hooks.
func (i *instruments) redrives(hooks redrive.Hooks) redrive.Hooks {
	if i.off {
		return hooks
	}
	return series.Redrives(hooks, i.to)
}

// to returns what adds to a series.
func (i *instruments) to(s *series.Series) series.Add {
	counter, histogram := i.counters[s], i.histograms[s]
	return func(ctx context.Context, by float64, values series.Values) {
		attributes := make([]attribute.KeyValue, len(s.Labels))
		for n, label := range s.Labels {
			attributes[n] = attribute.String(label, i.labels.Of(label, values[n]))
		}
		if histogram != nil {
			histogram.Record(ctx, by, metric.WithAttributes(attributes...))
			return
		}
		counter.Add(ctx, int64(by), metric.WithAttributes(attributes...))
	}
}

// where is what spans of attempts in one place have in common, made once: an attempt that is not sampled costs little
// more than its identifiers.
type where struct {
	name       string
	start      []trace.SpanStartOption
	attributes []attribute.KeyValue // set if the span is recorded
	kafka      bool
}

// whereOf returns what is known of the place of an attempt.
func (t *tracer) whereOf(op *observe.Operation) *where {
	p := series.Place{Topic: op.Topic, Handler: op.Handler}
	if w := t.places.Of(p); w != nil {
		return w
	}
	system := t.config.system(message.SubscriberNameFromCtx(op.Message.Context()))
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(clean(p.Topic)),
	}
	if group := t.originOf(op.Message).ConsumerGroup; group != "" {
		attributes = append(attributes, semconv.MessagingConsumerGroupName(clean(group)))
	}
	w := &where{name: "process " + clean(p.Topic), kafka: system == "kafka", attributes: attributes,
		start: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}}
	if op.Stage == 0 { // the subscriber of a stage is another one
		t.places.Keep(p, w, maxValues)
	}
	return w
}

func (t *tracer) originOf(msg *message.Message) (origin poison.Origin) {
	if t.origin == nil {
		return origin
	}
	defer func() { _ = recover() }() // the queue logs it
	return t.origin(msg)
}

// systems are the values of messaging.system, by the packages of subscribers and publishers.
var systems = map[string]string{
	"kafka": "kafka", "wmkafka": "kafka", "amqp": "rabbitmq", "wmamqp": "rabbitmq", "sql": "sql", "wmsql": "sql",
	"redisstream": "redis", "googlecloud": "gcp_pubsub", "sqs": "aws_sqs", "sns": "aws.sns", "jetstream": "nats",
	"letters": "spillway", "delay": "spillway",
}

// system returns the value of messaging.system for a type such as "*kafka.Publisher".
func (c *Config) system(typ string) string {
	if c.System != "" {
		return c.System
	}
	name, _, _ := strings.Cut(strings.TrimLeft(typ, "*"), ".")
	if system := systems[name]; system != "" {
		return system
	}
	if name == "" || name == "stages" || name == "message" { // a decorator's
		return "watermill"
	}
	return clean(name)
}

func typeOf(v any) string { return fmt.Sprintf("%T", v) }
