package telemetry

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.27.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/internal/series"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// tracer is the observe.Tracer of OpenTelemetry.
type tracer struct {
	config Config
	tracer trace.Tracer
	origin originOf // nil outside of a channel
	meters *instruments
	places *series.Places[where]
}

// Begin starts a span.
func (t *tracer) Begin(ctx context.Context, op observe.Operation) context.Context {
	if op.Kind == observe.Attempt {
		return t.attempt(ctx, &op)
	}
	return t.publishing(ctx, &op)
}

// attempt is a child of what the context has, or of the producer's span, with links to what led to it.
func (t *tracer) attempt(ctx context.Context, op *observe.Operation) context.Context {
	w := t.whereOf(op)
	start := w.start
	in := ctx
	parent := trace.SpanContextFromContext(ctx)
	if !parent.IsValid() {
		in = t.config.propagator.Extract(ctx, propagation.MapCarrier(op.Message.Metadata))
		if t.config.LinkProducer {
			if producer := trace.SpanContextFromContext(in); producer.IsValid() {
				start = append(start[:len(start):len(start)], trace.WithNewRoot(),
					trace.WithLinks(trace.Link{SpanContext: producer}))
			}
		}
	}
	if op.Earlier != "" {
		if link := parse(op.Earlier); link.IsValid() && !link.Equal(parent) {
			start = append(start[:len(start):len(start)], trace.WithLinks(trace.Link{SpanContext: link}))
		}
	}
	in, span := t.tracer.Start(in, w.name, start...)
	if span.IsRecording() {
		span.SetAttributes(w.attributes...)
	}
	return in
}

// publishing is a child of what it is a step of, or of the span in the context. What led to it before a wait is a link.
func (t *tracer) publishing(ctx context.Context, op *observe.Operation) context.Context {
	name, kind, typ := "send", trace.SpanKindProducer, operationTypeSend
	if op.Kind == observe.Settle {
		name, kind, typ = "settle", trace.SpanKindClient, semconv.MessagingOperationTypeSettle
	}
	start := []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(
		semconv.MessagingSystemKey.String(t.config.system(typeOf(op.Client))), semconv.MessagingOperationName(name),
		typ,
		semconv.MessagingDestinationName(clean(op.To)), operationKey.String(operations[op.Kind]),
	)}
	in := ctx
	if parent := parse(op.Parent); parent.IsValid() {
		in = trace.ContextWithSpanContext(ctx, parent)
	} else if (op.Kind == observe.Stage || op.Kind == observe.DeadLetter) &&
		!trace.SpanContextFromContext(ctx).IsValid() && op.Message != nil {
		in = t.config.propagator.Extract(ctx, propagation.MapCarrier(op.Message.Metadata))
	}
	if link := parse(op.Earlier); link.IsValid() &&
		(op.Parent == "" || op.Kind == observe.Redrive || op.Kind == observe.Park) {
		start = append(start, trace.WithLinks(trace.Link{SpanContext: link}))
	}
	in, _ = t.tracer.Start(in, name+" "+clean(op.To), start...)
	if !t.meters.off {
		in = context.WithValue(in, begunKey{}, time.Now())
	}
	return in
}

type begunKey struct{}

// End ends the span with what is known by now.
func (t *tracer) End(ctx context.Context, op observe.Operation, end observe.Ending) {
	span := trace.SpanFromContext(ctx)
	if op.Kind == observe.Attempt && !span.IsRecording() {
		return
	}
	defer span.End()
	// what a Go channel hands on can have it
	if begun, is := ctx.Value(begunKey{}).(time.Time); is && op.Kind != observe.Attempt {
		t.meters.sending(ctx, t.config.system(typeOf(op.Client)), &op, time.Since(begun).Seconds(), end.Err)
	}
	if !span.IsRecording() {
		return
	}
	if op.Kind == observe.Attempt {
		t.describeAttempt(span, &op, end)
	} else {
		describePublishing(span, &op)
	}
	if end.Err == nil {
		return
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(errorType(end.Err)))
	if end.Verdict.Class != classify.ClassAborted { // a message that went away has not failed
		span.SetStatus(codes.Error, series.Text(end.Text, maxText))
	}
}

func (t *tracer) describeAttempt(span trace.Span, op *observe.Operation, end observe.Ending) {
	attributes := make([]attribute.KeyValue, 0, 12)
	attributes = append(attributes, semconv.MessagingMessageID(clean(op.ID)), topicKey.String(clean(op.Topic)),
		handlerKey.String(clean(op.Handler)))
	if op.Number > 0 {
		attributes = append(attributes, attemptKey.Int(op.Number))
	}
	if op.Stage > 0 {
		attributes = append(attributes, stageKey.Int(op.Stage))
	}
	if op.Redrives > 0 {
		attributes = append(attributes, redrivesKey.Int(op.Redrives))
	}
	outcome := "success"
	if end.Err != nil {
		outcome = end.Verdict.Class.String()
		attributes = append(attributes, classKey.String(outcome))
		if reason := end.Verdict.Reason; reason != "" {
			attributes = append(attributes, reasonKey.String(clean(reason)))
		}
	}
	attributes = append(attributes, outcomeKey.String(outcome))
	if origin := t.originOf(op.Message); origin.Partition != "" && op.Stage == 0 {
		attributes = append(attributes, semconv.MessagingDestinationPartitionID(clean(origin.Partition)))
		if offset, err := strconv.Atoi(origin.Offset); err == nil && t.whereOf(op).kafka {
			attributes = append(attributes, semconv.MessagingKafkaOffset(offset))
		}
	}
	span.SetAttributes(attributes...)
}

func describePublishing(span trace.Span, op *observe.Operation) {
	attributes := make([]attribute.KeyValue, 0, 12)
	attributes = append(attributes, topicKey.String(clean(op.Topic)), handlerKey.String(clean(op.Handler)),
		semconv.MessagingMessageID(clean(op.ID)))
	if op.Attempts > 0 {
		attributes = append(attributes, attemptsKey.Int(op.Attempts), classKey.String(op.Verdict.Class.String()),
			reasonKey.String(clean(attempts.Reason(op.Verdict))))
	}
	if op.Stage > 0 {
		attributes = append(attributes, stageKey.Int(op.Stage))
	}
	if op.Redrives > 0 {
		attributes = append(attributes, redrivesKey.Int(op.Redrives))
	}
	if op.Outcome != "" {
		attributes = append(attributes, outcomeKey.String(op.Outcome))
	}
	if l, is := op.Letter.(poison.Letter); is {
		attributes = append(attributes, causeKey.String(letters.CauseOf(l)))
	}
	span.SetAttributes(attributes...)
}

// Trace returns the span of ctx in the form of W3C's traceparent, and its tracestate after a space.
func (t *tracer) Trace(ctx context.Context) string { return format(trace.SpanContextFromContext(ctx)) }

// measured are the attributes of what is measured of the attempts in a place, so that a success makes none.
type measured struct {
	conventions []attribute.KeyValue
	process     []metric.RecordOption
	consumed    []metric.AddOption
	success     []metric.AddOption
}

func (i *instruments) attempt(ctx context.Context, a middleware.Attempt) {
	if i.off {
		return
	}
	m := i.measuredIn(ctx, series.Place{Topic: a.Topic, Handler: a.Handler})
	if a.Number == 1 {
		i.consumed.Add(ctx, 1, m.consumed...)
	}
	if a.Err == nil {
		i.process.Record(ctx, a.Elapsed.Seconds(), m.process...)
		i.attempts.Add(ctx, 1, m.success...)
		return
	}
	failed := semconv.ErrorTypeKey.String(i.labels.Of("type", errorType(a.Err)))
	i.process.Record(ctx, a.Elapsed.Seconds(),
		metric.WithAttributes(append(m.conventions[:len(m.conventions):len(m.conventions)], failed)...))
	i.attempts.Add(ctx, 1, metric.WithAttributes(attribute.String("topic", i.labels.Of("topic", a.Topic)),
		attribute.String("handler", i.labels.Of("handler", a.Handler)),
		attribute.String("outcome", a.Verdict.Class.String())))
}

func (i *instruments) measuredIn(ctx context.Context, p series.Place) *measured {
	if m := i.places.Of(p); m != nil {
		return m
	}
	topic, handler := i.labels.Of("topic", p.Topic), i.labels.Of("handler", p.Handler)
	conventions := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(i.labels.Of("system", i.system(message.SubscriberNameFromCtx(ctx)))),
		semconv.MessagingOperationName("process"), semconv.MessagingDestinationName(topic),
	}
	set := attribute.NewSet(conventions...)
	m := &measured{
		conventions: conventions,
		process:     []metric.RecordOption{metric.WithAttributeSet(set)},
		consumed:    []metric.AddOption{metric.WithAttributeSet(set)},
		success: []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(
			attribute.String("topic", topic), attribute.String("handler", handler),
			attribute.String("outcome", "success")))},
	}
	i.places.Keep(p, m, maxValues)
	return m
}

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
