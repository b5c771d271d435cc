// Package telemetry makes OpenTelemetry spans and measurements of what a dead letter channel does.
//
//	observed, err := telemetry.New(telemetry.Config{})
//	if err != nil {
//		return err
//	}
//	config.Observers = []spillway.Observer{observed}
//	dlc, err := spillway.New(ctx, config)
//	...
//	report, err := redrive.Drain(ctx, dlc.Letters(), live, redrive.DrainConfig{
//		Rules: redrive.Rules{Allow: []string{"orders"}, Hooks: observed.Redrives(redrive.Hooks{})},
//	})
//
// Without a provider in the Config, those of otel.SetTracerProvider and otel.SetMeterProvider are used. For campaigns,
// and for parts that are attached one by one, give Tracer.
//
// # The spans of a message
//
//	send orders                          the producer's own
//	├─ process orders                    attempt 1 fails
//	│  └─ charge the card                the handler's own span
//	├─ process orders                    attempt 2 fails
//	│  └─ send orders.billing.retry.5s   the message waits; no span is open meanwhile
//	├─ process orders                    after the stage: links to the send
//	│  └─ send orders.dlq                the letter
//	└─ process orders                    after the redrive: links to its send
//	send orders                          the redrive: links to the letter's send
//	└─ settle orders.dlq                 the letter is marked in the store
//
// Names and attributes are those of OpenTelemetry's conventions for messaging, in the version that the package imports.
// What the conventions lack is spillway.attempt, spillway.class, spillway.reason, spillway.stage, spillway.cause,
// spillway.redrive.count and others: see docs/tracing.md.
//
// An attempt is a child of the span in the context of its message, such as that of a tracing middleware further out.
// Without one, it is a child of the producer's span. What came before a wait, in a stage or among the dead letters, is
// a link.
//
// # What stays as it is
//
// Spillway reads traceparent, tracestate and baggage of a message, and never writes them. They come to the handler,
// into the letter and out of a redrive byte by byte. What led to a message is in metadata of its own, x-earlier-trace.
// A forged or broken value makes no link, or one to a foreign span, and nothing else.
//
// # What is shown
//
// No payload, no value of metadata, and no text of an error without the masks of the channel. Values that come with
// messages are cut, and instruments have at most 200 values of each attribute.
//
// # What a message waits for
//
// For nothing but the SDK's own calls. With a batching span processor, a collector that hangs costs spans and no
// message. A panic out of the SDK is logged, and the message goes on. An attempt that is not sampled costs some hundred
// nanoseconds: see "go run ./lab/measures".
//
// The package imports the API of OpenTelemetry. No other package of the library does.
package telemetry
