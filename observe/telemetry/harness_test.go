package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // of sarama
}

var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// follow returns a Telemetry without instruments whose spans are kept.
func follow(t testing.TB, config telemetry.Config, options ...sdktrace.TracerProviderOption) (*telemetry.Telemetry, *tracetest.InMemoryExporter, trace.Tracer) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSyncer(kept))...)
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	config.TracerProvider = provider
	if config.MeterProvider == nil {
		config.MeterProvider = noop.NewMeterProvider()
	}
	observed := testkit.Must(telemetry.New(config))
	return observed, kept, provider.Tracer("shop")
}

// given are the metadata of a producer with a trace.
func given(span trace.SpanContext) message.Metadata {
	return message.Metadata{
		"traceparent": fmt.Sprintf("00-%s-%s-%s", span.TraceID(), span.SpanID(), span.TraceFlags()),
		"tracestate":  "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "baggage": "tenant=acme;secret, user=%20ada", "tenant": "acme",
	}
}

// world is where a story happens.
type world struct {
	system string
	config spillway.Config
	live   message.Publisher
	sub    message.Subscriber
	meters metric.MeterProvider // may be nil
	// back brings the letter back.
	back func(*testing.T, *spillway.Channel, redrive.Rules)
	// stage and dead are the topics of the stage and of the letters.
	topic, stage, dead string
}

var errDown = errors.New("the downstream is down")

// tell tells the story of one message: it fails, waits in a stage, fails, is dead-lettered, redriven, and succeeds. It
// judges the spans and returns them.
func tell(t *testing.T, w world) tracetest.SpanStubs {
	t.Helper()
	observed, kept, producer := follow(t, telemetry.Config{MeterProvider: w.meters})
	var healed atomic.Bool
	var mu sync.Mutex
	var seen []message.Metadata
	handled := make(chan struct{}, 1)
	w.config.Retry = middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}}
	placed := make(chan poison.Letter, 1)
	w.config.Queue.Hooks.OnDeadLetter = func(_ context.Context, l poison.Letter) { placed <- l }
	w.config.Observers = []spillway.Observer{observed}
	channel := testkit.Must(spillway.New(t.Context(), w.config))
	_, root := producer.Start(t.Context(), "send "+w.topic, trace.WithSpanKind(trace.SpanKindProducer))
	root.End()
	metadata := given(root.SpanContext())
	stop := testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		channel.Attach(r)
		testkit.Must(channel.Stages().AddConsumerHandler(r, "billing", w.topic, w.sub,
			func(msg *message.Message) error {
				mu.Lock()
				seen = append(seen, maps.Clone(msg.Metadata))
				mu.Unlock()
				_, own := producer.Start(msg.Context(), "charge the card")
				own.End()
				if !healed.Load() {
					return errDown
				}
				handled <- struct{}{}
				return nil
			}))
	})
	msg := message.NewMessage("order-7", []byte("acme"))
	msg.Metadata = maps.Clone(metadata)
	testkit.NoError(t, w.live.Publish(w.topic, msg))
	letter := <-placed
	healed.Store(true)
	w.back(t, channel, redrive.Rules{Allow: []string{w.topic}, Hooks: observed.Redrives(redrive.Hooks{})})
	<-handled
	stop()
	same := func(where string, got message.Metadata) {
		for key, want := range metadata {
			testkit.Equal(t, where+", "+key, got[key], want)
		}
	}
	same("the letter", letter.Original.Metadata)
	for i, got := range seen {
		same(fmt.Sprint("attempt ", i+1), got)
	}
	testkit.Check(t, len(seen) >= 5, "%d attempts", len(seen))
	// What redrives may end its span after the message was handled.
	testkit.Eventually(t, "each span that another links to has ended", func() bool { return linked(kept.GetSpans()) })
	judge(t, w, kept.GetSpans())
	return kept.GetSpans()
}

// linked reports whether each link of a span leads to a span that ended.
func linked(spans tracetest.SpanStubs) bool {
	ended := map[trace.SpanID]bool{}
	for _, s := range spans {
		ended[s.SpanContext.SpanID()] = true
	}
	return !slices.ContainsFunc(spans, func(s tracetest.SpanStub) bool {
		return slices.ContainsFunc(s.Links, func(l sdktrace.Link) bool { return !ended[l.SpanContext.SpanID()] })
	})
}

func attr(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return fmt.Sprint(a.Value.AsInterface())
		}
	}
	return ""
}

// judge holds the spans of a story to the conventions, and follows it back from its end to its begin.
func judge(t *testing.T, w world, spans tracetest.SpanStubs) {
	t.Helper()
	byID := map[trace.SpanID]tracetest.SpanStub{}
	var attempts []tracetest.SpanStub
	for _, s := range spans {
		byID[s.SpanContext.SpanID()] = s
		if strings.HasPrefix(s.Name, "process ") {
			attempts = append(attempts, s)
		}
	}
	history := tree(spans)
	kinds := map[string]trace.SpanKind{"process": trace.SpanKindConsumer, "send": trace.SpanKindProducer, "settle": trace.SpanKindClient}
	for _, s := range spans {
		if s.InstrumentationScope.Name == "shop" {
			parent := byID[s.Parent.SpanID()].Name
			testkit.Check(t, s.Name != "charge the card" || strings.HasPrefix(parent, "process "),
				"the handler's own span is a child of %q", parent)
			continue
		}
		for _, key := range []string{
			"messaging.system", "messaging.operation.name", "messaging.operation.type", "messaging.destination.name",
			"messaging.message.id", "spillway.topic", "spillway.handler",
		} {
			testkit.Check(t, attr(s, key) != "", "%q has no %s", s.Name, key)
		}
		name, topic := attr(s, "messaging.operation.name"), attr(s, "spillway.topic")
		id := attr(s, "messaging.message.id")
		testkit.Check(t, s.Name == name+" "+attr(s, "messaging.destination.name") && s.SpanKind == kinds[name] &&
			id == "order-7" && topic == w.topic,
			"%q has the kind %s, the message %s and the topic %s", s.Name, s.SpanKind, id, topic)
		testkit.Check(t, (s.Status.Code == codes.Error) == (attr(s, "error.type") != ""),
			"%q has the status %s and the error.type %q", s.Name, s.Status.Code, attr(s, "error.type"))
		testkit.Check(t, s.SpanContext.IsValid() && s.InstrumentationScope.SchemaURL != "" &&
			!s.EndTime.Before(s.StartTime),
			"%q has no schema or no end", s.Name)
		testkit.Check(t, name != "process" || attr(s, "messaging.system") == w.system,
			"%q has the system %q, want %q", s.Name, attr(s, "messaging.system"), w.system)
	}
	testkit.Require(t, len(attempts) >= 5, "%d attempts:\n%s", len(attempts), history)
	slices.SortFunc(attempts, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	first, last := attempts[0], attempts[len(attempts)-1]
	testkit.Check(t, last.Status.Code != codes.Error && attr(last, "spillway.outcome") == "success" &&
		attr(last, "spillway.redrive.count") == "1",
		"the last attempt is no success after a redrive:\n%s", history)
	// From the success to the first attempt: each span links to what led to it, or is its child.
	met, passed := map[trace.SpanID]bool{}, map[string]bool{}
	var back func(trace.SpanID)
	back = func(id trace.SpanID) {
		s, known := byID[id]
		if !known || met[id] {
			return
		}
		met[id] = true
		passed[s.Name] = passed[s.Name] || s.InstrumentationScope.Name != "shop"
		for _, link := range s.Links {
			back(link.SpanContext.SpanID())
		}
		if attr(s, "messaging.operation.name") == "send" { // an attempt's parent is the producer, which all attempts have
			back(s.Parent.SpanID())
		}
	}
	back(last.SpanContext.SpanID())
	testkit.Check(t, passed["send "+w.stage] && passed["send "+w.dead] && passed["send "+w.topic] &&
		met[first.SpanContext.SpanID()],
		"the way back from the success to the first attempt passes by %v:\n%s", passed, history)
}

// tree lists spans, in the order of their begin, with their parents and what they link to.
func tree(spans tracetest.SpanStubs) string {
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%s below %s: %s %s", s.SpanContext.SpanID(), s.Parent.SpanID(), s.Name,
			attr(s, "spillway.outcome"))
		for _, link := range s.Links {
			fmt.Fprintf(&b, ", after %s", link.SpanContext.SpanID())
		}
		b.WriteByte('\n')
	}
	return b.String()
}
