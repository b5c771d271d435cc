package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/foreign"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/poison"
)

// theirs is a tracing middleware as users of Watermill have it: a span around the handler, a child of the producer's,
// whose context the message carries on. Some write their own span into the metadata.
func theirs(tracer trace.Tracer, name string, writes bool) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			if !trace.SpanContextFromContext(ctx).IsValid() {
				ctx = w3c.Extract(ctx, propagation.MapCarrier(msg.Metadata))
			}
			ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer))
			defer span.End()
			msg.SetContext(ctx)
			if writes {
				w3c.Inject(ctx, propagation.MapCarrier(msg.Metadata))
			}
			out, err := h(msg)
			if err != nil {
				span.SetStatus(codes.Error, "failed")
			}
			return out, err
		}
	}
}

// keeper is a publisher that keeps what it takes.
type keeper struct{ taken chan *message.Message }

func (k keeper) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		k.taken <- msg
	}
	return nil
}

func (keeper) Close() error { return nil }

// consume runs one message through a router with a channel, and middlewares outside and inside of it.
func consume(t *testing.T, config spillway.Config, msg *message.Message, outside, inside []message.HandlerMiddleware, h message.NoPublishHandlerFunc) {
	t.Helper()
	live := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	testkit.NoError(t, live.Publish("orders", msg))
	channel := testkit.Must(spillway.New(t.Context(), config))
	done := make(chan struct{})
	settled := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			defer close(done)
			return next(msg)
		}
	}
	stop := testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		r.AddMiddleware(settled)
		r.AddMiddleware(outside...)
		channel.Attach(r)
		r.AddMiddleware(inside...)
		r.AddConsumerHandler("billing", "orders", live, h)
	})
	<-done
	stop()
}

func named(spans tracetest.SpanStubs, name string) (found tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// Feature O2: between a user's tracing middleware outside of the channel and one inside, the attempt is the child of
// the one, and the parent of the other. What they write into the metadata does not come into the letter, unless it was
// there before the channel.
func TestTheirMiddlewares(t *testing.T) {
	for _, writes := range []bool{false, true} {
		observed, kept, tracer := follow(t, telemetry.Config{})
		dead := keeper{make(chan *message.Message, 1)}
		config := spillway.Config{Publisher: dead, Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}}}
		config.Observers = []spillway.Observer{observed}
		_, root := tracer.Start(t.Context(), "send orders")
		root.End()
		msg := message.NewMessage("7", nil)
		msg.Metadata = given(root.SpanContext())
		producers := msg.Metadata["traceparent"]
		consume(t, config, msg, []message.HandlerMiddleware{theirs(tracer, "outside", false)}, []message.HandlerMiddleware{theirs(tracer, "inside", writes)},
			func(msg *message.Message) error { return errDown })
		spans := kept.GetSpans()
		outside, attempts, inside := named(spans, "outside")[0], named(spans, "process orders"), named(spans, "inside")
		if len(attempts) != 2 || len(inside) != 2 {
			t.Fatalf("%d attempts, %d spans inside:\n%s", len(attempts), len(inside), tree(spans))
		}
		for i, s := range attempts {
			if s.Parent.SpanID() != outside.SpanContext.SpanID() || inside[i].Parent.SpanID() != s.SpanContext.SpanID() || s.SpanContext.TraceID() != root.SpanContext().TraceID() {
				t.Errorf("attempt %d is at another place:\n%s", i+1, tree(spans))
			}
		}
		if letter := <-dead.taken; letter.Metadata["traceparent"] != producers || letter.Metadata["baggage"] != msg.Metadata["baggage"] {
			t.Errorf("the letter has traceparent %q, and the producer gave %q", letter.Metadata["traceparent"], producers)
		}
	}
}

// Feature O2: a publisher of the user's that makes spans makes children of ours, and what it writes is its own affair.
func TestTheirPublisher(t *testing.T) {
	observed, kept, tracer := follow(t, telemetry.Config{})
	dead := keeper{make(chan *message.Message, 1)}
	config := spillway.Config{Publisher: dead, Retry: middleware.RetryConfig{Attempts: 1}}
	config.Observers = []spillway.Observer{observed}
	config.Publisher = tracing{dead, tracer}
	consume(t, config, message.NewMessage("7", nil), nil, nil, func(*message.Message) error { return errDown })
	spans := kept.GetSpans()
	ours, theirs := named(spans, "send orders.dlq"), named(spans, "publish")
	if len(ours) != 1 || len(theirs) != 1 || theirs[0].Parent.SpanID() != ours[0].SpanContext.SpanID() {
		t.Errorf("their span is at another place:\n%s", tree(spans))
	}
}

type tracing struct {
	message.Publisher
	tracer trace.Tracer
}

func (p tracing) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		_, span := p.tracer.Start(msg.Context(), "publish")
		span.End()
	}
	return p.Publisher.Publish(topic, messages...)
}

func (p tracing) Unwrap() message.Publisher { return p.Publisher }

// Feature O2: without a trace of the producer, an attempt begins one. With LinkProducer, an attempt begins one and
// links to it.
func TestRoots(t *testing.T) {
	for _, links := range []bool{false, true} {
		observed, kept, tracer := follow(t, telemetry.Config{LinkProducer: links})
		config := spillway.Config{Publisher: keeper{make(chan *message.Message, 9)}}
		config.Observers = []spillway.Observer{observed}
		_, root := tracer.Start(t.Context(), "send orders")
		root.End()
		for _, metadata := range []message.Metadata{given(root.SpanContext()), nil} {
			msg := message.NewMessage("7", nil)
			msg.Metadata = metadata
			consume(t, config, msg, nil, nil, func(*message.Message) error { return nil })
		}
		attempts := named(kept.GetSpans(), "process orders")
		if len(attempts) != 2 || attempts[1].Parent.IsValid() || len(attempts[1].Links) > 0 {
			t.Fatalf("without a producer's trace: %+v", attempts)
		}
		s := attempts[0]
		if child := s.Parent.SpanID() == root.SpanContext().SpanID(); child == links || links && (len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != root.SpanContext().SpanID()) {
			t.Errorf("LinkProducer %t: the attempt has the parent %s and the links %v", links, s.Parent.SpanID(), s.Links)
		}
	}
}

// Feature O2: forged and broken traces fail no message, and stay as they are.
func TestForgedTraces(t *testing.T) {
	forged := []string{
		"", "garbage", "00-00000000000000000000000000000000-0000000000000000-00", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 " + strings.Repeat("a=b,", 10_000),
		"\x00\xff\n\x1b[2J", strings.Repeat("x", 1<<20), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
	}
	observed, kept, _ := follow(t, telemetry.Config{})
	dead := keeper{make(chan *message.Message, 1)}
	config := spillway.Config{Publisher: dead, Retry: middleware.RetryConfig{Attempts: 1}}
	config.Observers = []spillway.Observer{observed}
	channel := testkit.Must(spillway.New(t.Context(), config))
	for _, text := range forged {
		metadata := message.Metadata{"traceparent": text, "tracestate": text, "baggage": text, poison.KeyEarlierTrace: text, poison.KeyRedriveCount: text}
		for _, fails := range []bool{false, true} {
			msg := message.NewMessageWithContext(foreign.Within(t.Context(), "billing\xff\n", "orders\x00"), "7"+text, nil)
			msg.Metadata = maps.Clone(metadata)
			calls := 0
			_, err := channel.Middleware(func(*message.Message) ([]*message.Message, error) {
				calls++
				if fails {
					return nil, classify.Permanent(errors.New(text), classify.Reason(text))
				}
				return nil, nil
			})(msg)
			if err != nil || calls != 1 {
				t.Errorf("%.60q: %d calls, error %v", text, calls, err)
			}
			if fails {
				letter := <-dead.taken
				for _, key := range []string{"traceparent", "tracestate", "baggage"} {
					if letter.Metadata[key] != text {
						t.Errorf("%.60q became %.60q", text, letter.Metadata[key])
					}
				}
			}
		}
	}
	for _, s := range kept.GetSpans() {
		all := s.Name + s.Status.Description
		for _, a := range s.Attributes {
			all += fmt.Sprint(a.Value.AsInterface())
			if len(fmt.Sprint(a.Value.AsInterface())) > 1000 {
				t.Errorf("%s is %d bytes long", a.Key, len(fmt.Sprint(a.Value.AsInterface())))
			}
		}
		if strings.ContainsAny(all, "\x00\x1b\n") || !utf8.ValidString(all) {
			t.Errorf("a span has bytes that an exporter may refuse: %.200q", all)
		}
	}
}

// stuck is an exporter that hangs until it is released.
type stuck struct{ released chan struct{} }

func (s stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	select {
	case <-s.released:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (stuck) Shutdown(context.Context) error { return nil }

// Feature O2: a collector that hangs holds up no message.
func TestCollectorHangs(t *testing.T) {
	exporter := stuck{make(chan struct{})}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(8), sdktrace.WithMaxExportBatchSize(4)))
	observed, err := telemetry.New(telemetry.Config{TracerProvider: provider, MeterProvider: noop.NewMeterProvider(), Propagator: w3c})
	testkit.NoError(t, err)
	dead := keeper{make(chan *message.Message, 1000)}
	config := spillway.Config{Publisher: dead, Retry: middleware.RetryConfig{Attempts: 1}}
	config.Observers = []spillway.Observer{observed}
	channel := testkit.Must(spillway.New(t.Context(), config))
	var handled atomic.Int32
	for i := range 500 {
		msg := message.NewMessageWithContext(foreign.Within(t.Context(), "billing", "orders"), fmt.Sprint(i), nil)
		testkit.Must(channel.Middleware(func(*message.Message) ([]*message.Message, error) {
			if handled.Add(1)%2 == 0 {
				return nil, errDown
			}
			return nil, nil
		})(msg))
	}
	if handled.Load() != 500 || len(dead.taken) != 250 {
		t.Errorf("%d handled, %d letters", handled.Load(), len(dead.taken))
	}
	close(exporter.released)
	testkit.NoError(t, provider.Shutdown(context.Background()))
}

// bomb is a processor that panics.
type bomb struct{ at string }

func (b bomb) OnStart(context.Context, sdktrace.ReadWriteSpan) { b.blow("start") }
func (b bomb) OnEnd(sdktrace.ReadOnlySpan)                     { b.blow("end") }
func (bomb) Shutdown(context.Context) error                    { return nil }
func (bomb) ForceFlush(context.Context) error                  { return nil }

func (b bomb) blow(at string) {
	if b.at == at {
		panic("the SDK failed")
	}
}

// Feature O2: an SDK that panics fails no message, and never ends the user's own span.
func TestSDKPanics(t *testing.T) {
	for _, at := range []string{"start", "end"} {
		observed, _, _ := follow(t, telemetry.Config{}, sdktrace.WithSpanProcessor(bomb{at}))
		_, kept, tracer := follow(t, telemetry.Config{})
		dead := keeper{make(chan *message.Message, 1)}
		config := spillway.Config{Publisher: dead, Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}}}
		config.Observers = []spillway.Observer{observed}
		ended := -1
		watch := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				out, err := h(msg)
				ended = len(kept.GetSpans())
				return out, err
			}
		}
		consume(t, config, message.NewMessage("7", nil), []message.HandlerMiddleware{theirs(tracer, "outside", false), watch}, nil,
			func(*message.Message) error { return errDown })
		if len(dead.taken) != 1 || ended != 0 || len(kept.GetSpans()) != 1 {
			t.Errorf("a panic at the %s: %d letters, %d of the user's spans ended early", at, len(dead.taken), ended)
		}
	}
}
