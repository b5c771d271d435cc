package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// letterOf is a letter that was placed under a span.
func letterOf(span trace.SpanContext, redrives int) *message.Message {
	msg := message.NewMessage("order-7", []byte("acme"))
	msg.Metadata = given(span)
	return poison.Letter{
		Original: msg, Origin: poison.Origin{Topic: "orders", Handler: "billing"}, Trace: msg.Metadata["traceparent"],
		Failure: poison.Failure{Class: classify.ClassPermanent, Reason: "no_such_customer", Attempts: 2}, Redrive: poison.Redrive{Count: redrives},
	}.Encode()
}

// Feature O2: a campaign links each redrive to the letter. The message has the producer's trace, the redrive's beside.
func TestCampaign(t *testing.T) {
	observed, kept, tracer := follow(t, telemetry.Config{})
	_, placed := tracer.Start(t.Context(), "the letter")
	placed.End()
	store := testkit.Must(letters.NewStore(t.Context(), databases.SQLite.New(t), letters.Config{Service: "shop"}))
	testkit.NoError(t, store.Publish("orders.dlq", letterOf(placed.SpanContext(), 0)))
	all := testkit.Must(campaigns.New(t.Context(), store, campaigns.Config{
		Allow: []string{"orders"}, Shared: observe.Shared{Tracer: observed.Tracer()},
	}))
	live := keeper{make(chan *message.Message, 1)}
	worker := testkit.Must(campaigns.NewWorker(all, live, campaigns.WorkerConfig{Poll: 10 * time.Millisecond}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	testkit.Must(all.Start(t.Context(), campaigns.Request{Act: campaigns.Act{By: "ann", Reason: "repaired"}}))
	back := <-live.taken
	testkit.Eventually(t, "the span", func() bool { return len(named(kept.GetSpans(), "send orders")) == 1 })
	stop()
	testkit.NoError(t, <-ended)
	s := named(kept.GetSpans(), "send orders")[0]
	testkit.Check(t, len(s.Links) == 1 && s.Links[0].SpanContext.SpanID() == placed.SpanContext().SpanID(), "links %v",
		s.Links)
	for key, want := range map[string]string{
		"spillway.operation": "redrive", "spillway.redrive.count": "1", "spillway.reason": "no_such_customer",
	} {
		testkit.Equal(t, key, attr(s, key), want)
	}
	testkit.Check(t, attr(s, "spillway.cause") != "", "there is no cause")
	want := given(placed.SpanContext())
	want[poison.KeyEarlierTrace] = given(s.SpanContext)["traceparent"]
	for _, key := range []string{"traceparent", "baggage", poison.KeyEarlierTrace} {
		testkit.Equal(t, key, back.Metadata[key], want[key])
	}
}

// Feature O2: what a redrive handler parks or quarantines has a span, a child of the one in the letter's context.
func TestParked(t *testing.T) {
	observed, kept, tracer := follow(t, telemetry.Config{})
	ctx, around := tracer.Start(t.Context(), "their middleware")
	back := testkit.Must(redrive.NewHandler(testkit.Nowhere{}, redrive.HandlerConfig{
		Rules: redrive.Rules{Allow: []string{"invoices"}, Hooks: observed.Redrives(redrive.Hooks{})},
		Park:  testkit.Nowhere{}, MinWait: -1,
	}))
	none := trace.SpanContext{}
	for _, letter := range []*message.Message{letterOf(none, 0), letterOf(none, 3),
		message.NewMessage("no letter", nil)} {
		letter.SetContext(ctx)
		testkit.NoError(t, back.Handle(letter))
	}
	around.End()
	for to, n := range map[string]int{"send unknown.dlq.parked": 0, "send unknown.parked": 2, "send unknown.quarantine": 1} {
		spans := named(kept.GetSpans(), to)
		testkit.Equal(t, to, len(spans), n)
		for _, s := range spans {
			testkit.Check(t, s.Parent.SpanID() == around.SpanContext().SpanID() &&
				attr(s, "spillway.operation") == "park",
				"%q has the parent %s: %v", s.Name, s.Parent.SpanID(), s.Attributes)
		}
	}
}
