package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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

// watched is a channel's configuration, and where its letters are.
func watched(observed *telemetry.Telemetry, attempts int) (spillway.Config, keeper) {
	dead := keeper{make(chan *message.Message, 1000)}
	return spillway.Config{
		Publisher: dead, Observers: []spillway.Observer{observed},
		Retry: middleware.RetryConfig{Attempts: attempts, Backoff: middleware.Backoff{Initial: time.Millisecond}},
	}, dead
}

// consume runs one message through a router with a channel, and middlewares outside and inside of it.
func consume(t *testing.T, config spillway.Config, msg *message.Message, outside, inside []message.HandlerMiddleware,
	h message.NoPublishHandlerFunc) {
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

// Feature O2: an attempt is the child of a user's span outside, and the parent of one inside. No letter has them.
func TestTheirMiddlewares(t *testing.T) {
	for _, writes := range []bool{false, true} {
		observed, kept, tracer := follow(t, telemetry.Config{})
		config, dead := watched(observed, 2)
		config.Publisher = tracing{dead, tracer}
		_, root := tracer.Start(t.Context(), "send orders")
		root.End()
		msg := message.NewMessage("7", nil)
		msg.Metadata = given(root.SpanContext())
		producers := msg.Metadata["traceparent"]
		around, within := theirs(tracer, "outside", false), theirs(tracer, "inside", writes)
		consume(t, config, msg, []message.HandlerMiddleware{around}, []message.HandlerMiddleware{within},
			func(msg *message.Message) error { return errDown })
		spans := kept.GetSpans()
		outside, attempts, inside := named(spans, "outside")[0], named(spans, "process orders"), named(spans, "inside")
		testkit.Require(t, len(attempts) == 2 && len(inside) == 2, "%d attempts, %d spans inside:\n%s",
			len(attempts), len(inside), tree(spans))
		for i, s := range attempts {
			testkit.Check(t, below(s, outside) && below(inside[i], s) &&
				s.SpanContext.TraceID() == root.SpanContext().TraceID(),
				"attempt %d is at another place:\n%s", i+1, tree(spans))
		}
		testkit.Check(t, below(named(spans, "publish")[0], named(spans, "send orders.dlq")[0]),
			"the span of their publisher is at another place:\n%s", tree(spans))
		letter := <-dead.taken
		testkit.Equal(t, "traceparent of the letter", letter.Metadata["traceparent"], producers)
		testkit.Equal(t, "baggage of the letter", letter.Metadata["baggage"], msg.Metadata["baggage"])
	}
}

func below(child, parent tracetest.SpanStub) bool {
	return child.Parent.SpanID() == parent.SpanContext.SpanID()
}

// tracing is a publisher of the user's that makes spans.
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

// Feature O2: without a producer's trace an attempt begins one. With LinkProducer it begins one and links.
func TestRoots(t *testing.T) {
	for _, links := range []bool{false, true} {
		observed, kept, tracer := follow(t, telemetry.Config{LinkProducer: links})
		config, _ := watched(observed, 1)
		_, root := tracer.Start(t.Context(), "send orders")
		root.End()
		for _, metadata := range []message.Metadata{given(root.SpanContext()), nil} {
			msg := message.NewMessage("7", nil)
			msg.Metadata = metadata
			consume(t, config, msg, nil, nil, func(*message.Message) error { return nil })
		}
		attempts := named(kept.GetSpans(), "process orders")
		testkit.Require(t, len(attempts) == 2 && !attempts[1].Parent.IsValid() && len(attempts[1].Links) == 0,
			"without a producer's trace: %+v", attempts)
		s, producer := attempts[0], root.SpanContext().SpanID()
		testkit.Check(t, (s.Parent.SpanID() == producer) != links &&
			(!links || len(s.Links) == 1 && s.Links[0].SpanContext.SpanID() == producer),
			"LinkProducer %t: the attempt has the parent %s and the links %v", links, s.Parent.SpanID(), s.Links)
	}
}

// Feature O2: forged and broken traces fail no message, and stay as they are.
func TestForgedTraces(t *testing.T) {
	forged := []string{
		"", "garbage", "00-00000000000000000000000000000000-0000000000000000-00", strings.Repeat("x", 1<<20),
		"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 " + strings.Repeat("a=b,", 10_000),
		"\x00\xff\n\x1b[2J", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
	}
	observed, kept, _ := follow(t, telemetry.Config{})
	config, dead := watched(observed, 1)
	channel := testkit.Must(spillway.New(t.Context(), config))
	for _, text := range forged {
		metadata := message.Metadata{
			"traceparent": text, "tracestate": text, "baggage": text, poison.KeyEarlierTrace: text,
			poison.KeyRedriveCount: text,
		}
		for _, fails := range []bool{false, true} {
			msg := message.NewMessageWithContext(chain.Within(t.Context(), "billing\xff\n", "orders\x00"), "7"+text, nil)
			msg.Metadata = maps.Clone(metadata)
			calls, result := 0, error(nil)
			if fails {
				result = classify.Permanent(errors.New(text), classify.Reason(text))
			}
			_, err := channel.Middleware(func(*message.Message) ([]*message.Message, error) {
				calls++
				return nil,
					result
			})(msg)
			testkit.Check(t, err == nil && calls == 1, "%.60q: %d calls, error %v", text, calls, err)
			if fails {
				letter := <-dead.taken
				for _, key := range []string{"traceparent", "tracestate", "baggage"} {
					testkit.Check(t, letter.Metadata[key] == text, "%.60q became %.60q", text, letter.Metadata[key])
				}
			}
		}
	}
	for _, s := range kept.GetSpans() {
		all := s.Name + s.Status.Description
		for _, a := range s.Attributes {
			all += fmt.Sprint(a.Value.AsInterface())
			testkit.Check(t, len(fmt.Sprint(a.Value.AsInterface())) <= 1000,
				"%s is %d bytes long", a.Key, len(fmt.Sprint(a.Value.AsInterface())))
		}
		testkit.Check(t, !strings.ContainsAny(all, "\x00\x1b\n") && utf8.ValidString(all),
			"a span has bytes that an exporter may refuse: %.200q", all)
	}
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
		config, dead := watched(observed, 2)
		ended := -1
		watch := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				out, err := h(msg)
				ended = len(kept.GetSpans())
				return out, err
			}
		}
		outside := []message.HandlerMiddleware{theirs(tracer, "outside", false), watch}
		consume(t, config, message.NewMessage("7", nil), outside, nil, func(*message.Message) error { return errDown })
		testkit.Check(t, len(dead.taken) == 1 && ended == 0 && len(kept.GetSpans()) == 1,
			"a panic at the %s: %d letters, %d of the user's spans ended early", at, len(dead.taken), ended)
	}
}
