package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.27.0"

	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/internal/few"
)

// instruments are those of the conventions, and those of Spillway, which have the names, labels and meanings of package
// prom.
type instruments struct {
	labels *few.Values
	system func(typ string) string // of messaging.system
	off    bool                    // all do nothing

	process, operation                   metric.Float64Histogram
	consumed, sent                       metric.Int64Counter
	attempts, retries, reentries, budget metric.Int64Counter
	deadLetters, discarded, refused      metric.Int64Counter
	unplaced, outputs, exceeded, breaker metric.Int64Counter
	applied, duplicates, stale, putBack  metric.Int64Counter
	leasesLost, purged                   metric.Int64Counter
	redriven, quarantined                metric.Int64Counter
	redrivesRefused, parked, redriveErrs metric.Int64Counter
	lateness                             metric.Float64Histogram

	places placesOf
}

// seconds are the bounds that the conventions advise for durations.
var seconds = metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10)

func newInstruments(meter metric.Meter, labels *few.Values, system func(string) string) (*instruments, error) {
	i := &instruments{labels: labels, system: system}
	var failed []error
	counter := func(into *metric.Int64Counter, name, unit, help string) {
		made, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		*into, failed = made, append(failed, err)
	}
	histogram := func(into *metric.Float64Histogram, name, help string, bounds metric.HistogramOption) {
		made, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), bounds)
		*into, failed = made, append(failed, err)
	}
	histogram(&i.process, "messaging.process.duration", "Duration of processing operation.", seconds)
	histogram(&i.operation, "messaging.client.operation.duration", "Duration of messaging operation initiated by a "+
		"producer or consumer client.", seconds)
	counter(&i.consumed, "messaging.client.consumed.messages", "{message}",
		"Number of messages that were delivered to "+
			"the application.")
	counter(&i.sent, "messaging.client.sent.messages", "{message}", "Number of messages producer attempted to send to "+
		"the broker.")

	counter(&i.attempts, "spillway.attempts", "",
		"Calls of handlers, by their outcome: success, or the class of the error.")
	counter(&i.retries, "spillway.retries", "", "Messages that are to be handled again: in place, or in a stage, whose "+
		"number is the stage.")
	counter(&i.reentries, "spillway.reentries", "", "Messages that came out of a stage, whose number is the stage; 0 "+
		"are redriven ones.")
	counter(&i.budget, "spillway.retry_budget_refusals", "", "Further attempts that the retry budget did not allow at "+
		"once: the message went to its next stage, or waited.")
	counter(&i.deadLetters, "spillway.dead_letters", "",
		"Messages dead-lettered, confirmed by the publisher of dead letters.")
	counter(&i.discarded, "spillway.discarded", "", "Messages dropped because their error says so.")
	counter(&i.refused, "spillway.placements_refused", "", "Refusals of a dead letter by a publisher.")
	counter(&i.unplaced, "spillway.unplaced", "",
		"Dead letters that all publishers refused; their messages were requeued.")
	counter(&i.outputs, "spillway.output_errors", "", "Refusals of a handler's output by its publisher.")
	counter(&i.exceeded, "spillway.crash_limit_exceeded", "", "Messages that ended the process too often.")
	counter(&i.breaker, "spillway.outage_changes", "", "Changes of a breaker, by the new state.")
	counter(&i.applied, "spillway.messages_applied", "", "Messages that the idempotent receiver applied.")
	counter(&i.duplicates, "spillway.duplicates", "",
		"Messages that the receiver absorbed because they were applied before.")
	counter(&i.stale, "spillway.stale", "", "Messages that the receiver skipped because a later version was applied.")
	counter(&i.putBack, "spillway.put_back", "",
		"Messages that the receiver requeued because another consumer has their key.")
	counter(&i.leasesLost, "spillway.leases_lost", "", "Leases of the receiver that ended under a running handler.")
	counter(&i.purged, "spillway.purged", "", "What a purge deleted: keys of the receiver.")
	counter(&i.redriven, "spillway.redriven", "", "Letters that came back, by the topic that they were published to.")
	counter(&i.quarantined, "spillway.quarantined", "", "Letters that failed again after the most redrives.")
	counter(&i.redrivesRefused, "spillway.redrives_refused", "", "Letters whose topic is not allowed.")
	counter(&i.parked, "spillway.parked", "", "Messages of dead-letter topics that were parked.")
	counter(&i.redriveErrs, "spillway.redrive_errors", "", "Refusals of a letter on its way back by the publisher.")
	histogram(&i.lateness, "spillway.stage_lateness", "How late a message came out of its stage.",
		metric.WithExplicitBucketBoundaries(.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800))
	_, i.off = i.process.(noop.Float64Histogram)
	return i, errors.Join(failed...)
}

// add counts one under pairs of names and values. The values are bounded.
func (i *instruments) add(ctx context.Context, c metric.Int64Counter, pairs ...string) {
	attributes := make([]attribute.KeyValue, 0, len(pairs)/2)
	for n := 0; n < len(pairs); n += 2 {
		attributes = append(attributes, attribute.String(pairs[n], i.labels.Of(pairs[n], pairs[n+1])))
	}
	c.Add(ctx, 1, metric.WithAttributes(attributes...))
}

// sending measures a publishing, or a settlement.
func (i *instruments) sending(ctx context.Context, system string, op *observe.Operation, elapsed float64, err error) {
	name, typ := "send", operationTypeSend
	if op.Kind == observe.Settle {
		name, typ = "settle", semconv.MessagingOperationTypeSettle
	}
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(i.labels.Of("system", system)), semconv.MessagingOperationName(name),
		semconv.MessagingDestinationName(i.labels.Of("destination", op.To)),
	}
	if err != nil {
		attributes = append(attributes, semconv.ErrorTypeKey.String(i.labels.Of("type", errorType(err))))
	}
	if op.Kind != observe.Settle {
		i.sent.Add(ctx, 1, metric.WithAttributes(attributes...))
	}
	i.operation.Record(ctx, elapsed, metric.WithAttributes(append(attributes, typ)...))
}
