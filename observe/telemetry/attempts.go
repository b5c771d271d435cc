package telemetry

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.27.0"

	"github.com/watermill-spillway/spillway/middleware"
)

// placesOf has the attributes of successes by place, so that a success makes none.
type placesOf struct {
	known  atomic.Pointer[map[place]*measured] // copied on write
	adding sync.Mutex
}

// measured are the attributes of what is measured of the attempts in a place.
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
	m := i.measuredIn(ctx, place{a.Topic, a.Handler})
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
	i.add(ctx, i.attempts, "topic", a.Topic, "handler", a.Handler, "outcome", a.Verdict.Class.String())
}

func (i *instruments) measuredIn(ctx context.Context, p place) *measured {
	if known := i.places.known.Load(); known != nil {
		if m := (*known)[p]; m != nil {
			return m
		}
	}
	topic, handler := i.labels.Of("topic", p.topic), i.labels.Of("handler", p.handler)
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
	i.places.adding.Lock()
	defer i.places.adding.Unlock()
	now := map[place]*measured{}
	if known := i.places.known.Load(); known != nil {
		now = *known
	}
	if len(now) < i.labels.Most() {
		next := maps.Clone(now)
		next[place{strings.Clone(p.topic), strings.Clone(p.handler)}] = m
		i.places.known.Store(&next)
	}
	return m
}
