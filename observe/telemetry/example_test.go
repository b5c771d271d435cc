package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// A message fails twice and is dead-lettered: a span for each attempt, and one for the letter.
func Example() {
	kept := tracetest.NewInMemoryExporter() // a service has a batching exporter
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept))
	observed, err := telemetry.New(telemetry.Config{TracerProvider: provider})
	if err != nil {
		log.Fatal(err)
	}
	live := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	dlc, err := spillway.New(context.Background(), spillway.Config{
		Publisher: live, Observers: []spillway.Observer{observed},
		Retry: middleware.RetryConfig{Attempts: 2, Backoff: middleware.Backoff{Initial: time.Millisecond}},
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = campaigns.Config{Shared: observe.Shared{Tracer: observed.Tracer()}} // campaigns are traced too,
	_ = redrive.Rules{Hooks: observed.Redrives(redrive.Hooks{})}            // and what drains and handlers bring back

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router)
	router.AddConsumerHandler("billing", "orders", live, func(*message.Message) error {
		return errors.New("the bank is down")
	})
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	letters, err := live.Subscribe(context.Background(), "orders.dlq")
	if err != nil {
		log.Fatal(err)
	}
	if err := live.Publish("orders", message.NewMessage("order-7", nil)); err != nil {
		log.Fatal(err)
	}
	(<-letters).Ack()
	if err := errors.Join(router.Close(), live.Close()); err != nil {
		log.Fatal(err)
	}
	spans := kept.GetSpans()
	slices.SortFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	for _, span := range spans {
		fmt.Println(span.Name)
	}
	// Output:
	// process orders
	// process orders
	// send orders.dlq
}
