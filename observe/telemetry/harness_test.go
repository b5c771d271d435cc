package telemetry_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/poison"
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
	config.TracerProvider, config.Propagator = provider, w3c
	if config.MeterProvider == nil {
		config.MeterProvider = noop.NewMeterProvider()
	}
	observed := testkit.Must(telemetry.New(config))
	return observed, kept, provider.Tracer("shop")
}

func open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db")+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
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
	// handle adds the handler to the router, with its stages.
	handle func(*testing.T, *spillway.Channel, *message.Router, message.NoPublishHandlerFunc)
	// back brings the letter back.
	back func(*testing.T, *spillway.Channel, *telemetry.Telemetry)
	// stage and dead are the topics of the stage and of the letters.
	topic, stage, dead string
}

var errDown = errors.New("the downstream is down")

// tell tells the story of one message: it fails, waits in a stage, fails, is dead-lettered, redriven, and succeeds.
func tell(t *testing.T, w world) tracetest.SpanStubs {
	t.Helper()
	observed, kept, producer := follow(t, telemetry.Config{})
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
		w.handle(t, channel, r, func(msg *message.Message) error {
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
		})
	})
	msg := message.NewMessage("order-7", []byte("acme"))
	msg.Metadata = maps.Clone(metadata)
	testkit.NoError(t, w.live.Publish(w.topic, msg))
	letter := <-placed
	healed.Store(true)
	w.back(t, channel, observed)
	<-handled
	stop()
	same := func(where string, got message.Metadata) {
		for key, want := range metadata {
			if got[key] != want {
				t.Errorf("%s has %s %q, and the producer gave %q", where, key, got[key], want)
			}
		}
	}
	same("the letter", letter.Original.Metadata)
	for i, got := range seen {
		same(fmt.Sprint("attempt ", i+1), got)
	}
	if len(seen) < 5 {
		t.Errorf("%d attempts", len(seen))
	}
	// What redrives may end its span after the message was handled.
	testkit.Eventually(t, "each span that another links to has ended", func() bool { return linked(kept.GetSpans()) })
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
	story := tree(spans)
	kinds := map[string]trace.SpanKind{"process": trace.SpanKindConsumer, "send": trace.SpanKindProducer, "settle": trace.SpanKindClient}
	for _, s := range spans {
		if s.InstrumentationScope.Name == "shop" {
			continue
		}
		for _, key := range []string{"messaging.system", "messaging.operation.name", "messaging.operation.type", "messaging.destination.name", "messaging.message.id", "spillway.topic", "spillway.handler"} {
			if attr(s, key) == "" {
				t.Errorf("%q has no %s", s.Name, key)
			}
		}
		name, to := attr(s, "messaging.operation.name"), attr(s, "messaging.destination.name")
		if s.Name != name+" "+to || s.SpanKind != kinds[name] || attr(s, "messaging.message.id") != "order-7" || attr(s, "spillway.topic") != w.topic {
			t.Errorf("%q has the kind %s, the message %s and the topic %s", s.Name, s.SpanKind, attr(s, "messaging.message.id"), attr(s, "spillway.topic"))
		}
		if failed := s.Status.Code == codes.Error; failed != (attr(s, "error.type") != "") {
			t.Errorf("%q has the status %s and the error.type %q", s.Name, s.Status.Code, attr(s, "error.type"))
		}
		if !s.SpanContext.IsValid() || s.InstrumentationScope.SchemaURL == "" || s.EndTime.Before(s.StartTime) {
			t.Errorf("%q has no schema or no end", s.Name)
		}
		if name == "process" && attr(s, "messaging.system") != w.system {
			t.Errorf("%q has the system %q, want %q", s.Name, attr(s, "messaging.system"), w.system)
		}
	}
	for _, s := range spans {
		if s.Name == "charge the card" && !strings.HasPrefix(byID[s.Parent.SpanID()].Name, "process ") {
			t.Errorf("the handler's own span is a child of %q", byID[s.Parent.SpanID()].Name)
		}
	}
	if len(attempts) < 5 {
		t.Fatalf("%d attempts:\n%s", len(attempts), story)
	}
	slices.SortFunc(attempts, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	first, last := attempts[0], attempts[len(attempts)-1]
	if last.Status.Code == codes.Error || attr(last, "spillway.outcome") != "success" || attr(last, "spillway.redrive.count") != "1" {
		t.Errorf("the last attempt is no success after a redrive:\n%s", story)
	}
	// From the success to the first attempt: each span links to what led to it, or is its child.
	met := map[trace.SpanID]bool{}
	next := []trace.SpanID{last.SpanContext.SpanID()}
	for len(next) > 0 {
		id := next[0]
		next = next[1:]
		s, known := byID[id]
		if !known || met[id] {
			continue
		}
		met[id] = true
		for _, link := range s.Links {
			next = append(next, link.SpanContext.SpanID())
		}
		if attr(s, "messaging.operation.name") == "send" { // an attempt's parent is the producer, which all attempts have
			next = append(next, s.Parent.SpanID())
		}
	}
	for _, want := range []string{"send " + w.stage, "send " + w.dead, "send " + w.topic} {
		if !slices.ContainsFunc(spans, func(s tracetest.SpanStub) bool {
			return s.Name == want && s.InstrumentationScope.Name != "shop" && met[s.SpanContext.SpanID()]
		}) {
			t.Errorf("the way back from the success does not pass by %q:\n%s", want, story)
		}
	}
	if !met[first.SpanContext.SpanID()] {
		t.Errorf("the way back from the success does not end at the first attempt:\n%s", story)
	}
}

// tree prints spans as trees, in the order of their begin.
func tree(spans tracetest.SpanStubs) string {
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	number := map[trace.SpanID]int{}
	for i, s := range spans {
		number[s.SpanContext.SpanID()] = i + 1
	}
	var b strings.Builder
	var print func(parent trace.SpanID, depth int)
	print = func(parent trace.SpanID, depth int) {
		for i, s := range spans {
			of := s.Parent.SpanID()
			if number[of] == 0 {
				of = trace.SpanID{}
			}
			if of != parent {
				continue
			}
			fmt.Fprintf(&b, "%s%d %s", strings.Repeat("  ", depth), i+1, s.Name)
			for _, key := range []attribute.Key{"spillway.attempt", "spillway.stage", "spillway.outcome", "spillway.redrive.count"} {
				if v := attr(s, string(key)); v != "" {
					_, short, _ := strings.Cut(string(key), ".")
					fmt.Fprintf(&b, ", %s %s", short, v)
				}
			}
			for _, link := range s.Links {
				fmt.Fprintf(&b, ", after %d", number[link.SpanContext.SpanID()])
			}
			b.WriteByte('\n')
			print(s.SpanContext.SpanID(), depth+1)
		}
	}
	print(trace.SpanID{}, 0)
	return b.String()
}
