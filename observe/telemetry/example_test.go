package telemetry_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/settings"
)

// The story of one message: two attempts, a stage, two attempts, a letter, a redrive, and the success.
func Example() {
	dir, err := os.MkdirTemp("", "telemetry")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	live, waiting := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil), gochannel.NewGoChannel(gochannel.Config{}, nil)
	kept := tracetest.NewInMemoryExporter() // a service has a batching exporter
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept))

	placed, handled := make(chan struct{}, 1), make(chan struct{}, 1)
	config := spillway.Config{
		Service: "shop", DB: db,
		Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}},
		Queue: poison.QueueConfig{Hooks: poison.Hooks{OnDeadLetter: func(context.Context, poison.Letter) { placed <- struct{}{} }}},
		Stages: &stages.Config{
			Publisher: waiting, Stages: stages.Delays(10 * time.Millisecond),
			Subscriber: func(topic, group string) (message.Subscriber, error) { return waiting, nil },
		},
	}
	observed, err := telemetry.New(telemetry.Config{TracerProvider: provider})
	if err != nil {
		log.Fatal(err)
	}
	config.Observers = []spillway.Observer{observed}
	dlc, err := spillway.New(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router)
	var repaired atomic.Bool
	_, err = dlc.Stages().AddConsumerHandler(router, "billing", "orders", live, func(msg *message.Message) error {
		_, span := provider.Tracer("shop").Start(msg.Context(), "charge the card")
		defer span.End()
		if !repaired.Load() {
			return errors.New("the bank is down")
		}
		handled <- struct{}{}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()

	ctx, span := provider.Tracer("shop").Start(context.Background(), "send orders", trace.WithSpanKind(trace.SpanKindProducer))
	order := message.NewMessage("order-7", nil)
	propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(order.Metadata))
	if err := live.Publish("orders", order); err != nil {
		log.Fatal(err)
	}
	span.End()
	<-placed
	repaired.Store(true)
	_ = campaigns.Config{Shared: settings.Shared{Tracer: observed.Tracer()}} // campaigns are traced too
	if _, err := redrive.Drain(context.Background(), dlc.Letters(), live, redrive.DrainConfig{
		Rules: redrive.Rules{Allow: []string{"orders"}, Hooks: observed.Redrives(redrive.Hooks{})},
	}); err != nil {
		log.Fatal(err)
	}
	<-handled
	if err := router.Close(); err != nil {
		log.Fatal(err)
	}
	printStory(kept.GetSpans(), trace.SpanID{}, 0)
	// Output:
	// send orders
	//   process orders: unknown
	//     charge the card
	//   process orders: unknown, after process orders
	//     charge the card
	//     send orders.billing.retry.10ms
	//   process orders: unknown, after send orders.billing.retry.10ms
	//     charge the card
	//   process orders: unknown, after process orders
	//     charge the card
	//     send orders.dlq
	//   process orders: success, after send orders
	//     charge the card
	// send orders, after send orders.dlq
	//   settle orders.dlq: redriven
}

// printStory prints the spans below a parent, and what they link to.
func printStory(spans tracetest.SpanStubs, parent trace.SpanID, depth int) {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	names := map[trace.SpanID]string{}
	for _, s := range spans {
		names[s.SpanContext.SpanID()] = s.Name
	}
	for _, s := range spans {
		if s.Parent.SpanID() != parent {
			continue
		}
		line := strings.Repeat("  ", depth) + s.Name
		for _, a := range s.Attributes {
			if a.Key == "spillway.outcome" {
				line += ": " + a.Value.AsString()
			}
		}
		for _, link := range s.Links {
			line += ", after " + names[link.SpanContext.SpanID()]
		}
		fmt.Println(line)
		printStory(spans, s.SpanContext.SpanID(), depth+1)
	}
}
