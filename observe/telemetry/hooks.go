package telemetry

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.27.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/internal/first"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// observe measures what the channel of config does, on its hooks. Without a meter it leaves them as they are.
func (i *instruments) observe(config *spillway.Config) {
	if i.off {
		return
	}
	retry := &config.Retry.Hooks
	retry.OnAttempt = first.Ours(i.attempt, retry.OnAttempt)
	retry.OnRetry = first.Ours2(func(ctx context.Context, a middleware.Attempt, _ time.Duration) {
		i.add(ctx, i.retries, "topic", a.Topic, "handler", a.Handler, "place", "process", "stage", "")
	}, retry.OnRetry)
	retry.OnBudgetSpent = first.Ours(func(ctx context.Context, b middleware.BudgetSpent) {
		to := "wait"
		if b.ToStage {
			to = "stage"
		}
		i.add(ctx, i.budget, "handler", message.HandlerNameFromCtx(ctx), "traffic", b.Traffic, "to", to)
	}, retry.OnBudgetSpent)
	if config.Stages != nil {
		s := &config.Stages.Hooks
		s.OnStage = first.Ours(func(ctx context.Context, w stages.Waiting) {
			i.add(ctx, i.retries, "topic", w.Topic, "handler", w.Handler, "place", "stage", "stage",
				strconv.Itoa(w.Stage))
		}, s.OnStage)
		s.OnReentry = first.Ours(i.reentry, s.OnReentry)
	}

	queue := &config.Queue.Hooks
	queue.OnDeadLetter = first.Ours(func(ctx context.Context, l poison.Letter) {
		i.add(ctx, i.deadLetters, "topic", l.Origin.Topic, "handler", l.Origin.Handler, "class",
			l.Failure.Class.String(),
			"reason", l.Failure.Reason)
	}, queue.OnDeadLetter)
	queue.OnDiscard = first.Ours(func(ctx context.Context, l poison.Letter) {
		i.add(ctx, i.discarded, "topic", l.Origin.Topic, "handler", l.Origin.Handler, "reason", l.Failure.Reason)
	}, queue.OnDiscard)
	queue.OnPublishError = first.Ours2(i.refusal(i.refused), queue.OnPublishError)
	queue.OnUnplaced = first.Ours2(i.refusal(i.unplaced), queue.OnUnplaced)
	config.Outputs.OnOutputError = first.Ours(func(ctx context.Context, _ error) {
		i.add(ctx, i.outputs, "topic", message.SubscribeTopicFromCtx(ctx), "handler", message.HandlerNameFromCtx(ctx))
	}, config.Outputs.OnOutputError)
	if config.CrashLimit != nil {
		limit := &config.CrashLimit.Hooks
		limit.OnExceeded = first.Ours(func(ctx context.Context, e crashlimit.Unfinished) {
			i.add(ctx, i.exceeded, "handler", e.Consumer)
		}, limit.OnExceeded)
	}
	if config.Receiver != nil {
		i.receiver(&config.Receiver.Hooks)
	}
	if purge := config.Purge; purge != nil {
		purge.OnRun = first.Ours2(func(ctx context.Context, n int, _ error) {
			i.purged.Add(ctx, int64(n), metric.WithAttributes(attribute.String("purge", "keys")))
		}, purge.OnRun)
	}
	if config.Breaker != nil {
		hooks := &config.Breaker.Hooks
		theirs := hooks.OnChange
		hooks.OnChange = func(c breaker.Change) {
			i.add(context.Background(), i.breaker, "handler", c.Handler, "state", string(c.To))
			if theirs != nil {
				theirs(c)
			}
		}
	}
}

func (i *instruments) receiver(receiver *idempotency.Hooks) {
	receiver.OnApplied = first.Ours(i.consumer(i.applied), receiver.OnApplied)
	receiver.OnDuplicate = first.Ours(i.consumer(i.duplicates), receiver.OnDuplicate)
	receiver.OnRequeue = first.Ours(i.consumer(i.putBack), receiver.OnRequeue)
	receiver.OnLeaseLost = first.Ours(i.consumer(i.leasesLost), receiver.OnLeaseLost)
	stale, theirs := i.consumer(i.stale), receiver.OnStale
	receiver.OnStale = func(ctx context.Context, key idempotency.Key, version, applied int64) {
		stale(ctx, key)
		if theirs != nil {
			theirs(ctx, key, version, applied)
		}
	}
}

// redrives measures, and then calls hooks.
func (i *instruments) redrives(hooks redrive.Hooks) redrive.Hooks {
	if i.off {
		return hooks
	}
	hooks.OnRedrive = first.Ours2(func(ctx context.Context, _ poison.Letter, topic string) {
		i.add(ctx, i.redriven, "topic", topic)
	}, hooks.OnRedrive)
	hooks.OnRefused = first.Ours2(func(ctx context.Context, l poison.Letter, _ string) {
		i.add(ctx, i.redrivesRefused, "topic", l.Origin.Topic)
	}, hooks.OnRefused)
	hooks.OnQuarantine = first.Ours(func(ctx context.Context, l poison.Letter) {
		i.add(ctx, i.quarantined, "topic", l.Origin.Topic)
	}, hooks.OnQuarantine)
	hooks.OnParked = first.Ours2(func(ctx context.Context, l poison.Letter, _ error) {
		i.add(ctx, i.parked, "topic", l.DeadLetterTopic)
	}, hooks.OnParked)
	hooks.OnPublishError = first.Ours2(func(ctx context.Context, l poison.Letter, _ error) {
		i.add(ctx, i.redriveErrs, "topic", l.Origin.Topic)
	}, hooks.OnPublishError)
	return hooks
}

func (i *instruments) reentry(ctx context.Context, r stages.Reentry) {
	stage := strconv.Itoa(r.Stage)
	i.add(ctx, i.reentries, "topic", r.Topic, "handler", r.Handler, "stage", stage)
	if r.Stage > 0 && r.Late > 0 { // a store says how late a message is elsewhere
		i.lateness.Record(ctx, r.Late.Seconds(),
			metric.WithAttributes(attribute.String("topic", i.labels.Of("topic", r.Topic)),
				attribute.String("handler", i.labels.Of("handler", r.Handler)), attribute.String("stage", stage)))
	}
}

func (i *instruments) refusal(c metric.Int64Counter) func(context.Context, poison.Letter, error) {
	return func(ctx context.Context, l poison.Letter, _ error) {
		i.add(ctx, c, "topic", l.Origin.Topic, "handler", l.Origin.Handler)
	}
}

func (i *instruments) consumer(c metric.Int64Counter) func(context.Context, idempotency.Key) {
	return func(ctx context.Context, k idempotency.Key) { i.add(ctx, c, "consumer", k.Consumer) }
}

// place is where attempts are made.
type place struct{ topic, handler string }

// where is what spans of attempts in one place have in common, made once: an attempt that is not sampled costs little
// more than its identifiers.
type where struct {
	place
	name       string
	start      []trace.SpanStartOption
	attributes []attribute.KeyValue // set if the span is recorded
	kafka      bool
}

// whereOf returns what is known of the place of an attempt.
func (t *tracer) whereOf(op *observe.Operation) *where {
	p := place{op.Topic, op.Handler}
	if w := t.places.latest.Load(); w != nil && w.place == p {
		return w
	}
	if w := (*t.places.known.Load())[p]; w != nil {
		t.places.latest.Store(w)
		return w
	}
	return t.addPlace(p, op)
}

func (t *tracer) addPlace(p place, op *observe.Operation) *where {
	system := t.config.system(message.SubscriberNameFromCtx(op.Message.Context()))
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(clean(p.topic)),
	}
	if group := t.originOf(op.Message).ConsumerGroup; group != "" {
		attributes = append(attributes, semconv.MessagingConsumerGroupName(clean(group)))
	}
	p = place{strings.Clone(p.topic), strings.Clone(p.handler)}
	w := &where{place: p, name: "process " + clean(p.topic), kafka: system == "kafka", attributes: attributes,
		start: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}}
	t.places.adding.Lock()
	defer t.places.adding.Unlock()
	now := *t.places.known.Load()
	if len(now) >= maxValues || op.Stage > 0 { // the subscriber of a stage is another one
		return w
	}
	next := maps.Clone(now)
	next[p] = w
	t.places.known.Store(&next)
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
