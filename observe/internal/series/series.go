// Package series has the counters and histograms that the hooks of a channel feed, once: packages prom and telemetry
// make their own from it, with the same names, labels and meanings.
package series

// Series is a counter, or a histogram of seconds.
type Series struct {
	Name, Help string // the name as Prometheus has it, without its prefix
	Labels     []string
	Bounds     []float64 // of a histogram; nil is a counter
}

// All are all series that Channel and Redrives feed.
var All []*Series

func counter(name, help string, labels ...string) *Series {
	return histogram(name, nil, help, labels...)
}

func histogram(name string, bounds []float64, help string, labels ...string) *Series {
	s := &Series{Name: name, Help: help, Labels: labels, Bounds: bounds}
	All = append(All, s)
	return s
}

// The series.
var (
	retries = counter("retries_total",
		"Messages that are to be handled again: in place, or in a stage, whose number is the stage.",
		"topic", "handler", "place", "stage")
	reentries = counter("reentries_total",
		"Messages that came out of a stage, whose number is the stage; 0 are redriven ones.",
		"topic", "handler", "stage")
	lateness = histogram("stage_lateness_seconds", []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		"How late a message came out of its stage.", "topic", "handler", "stage")
	budget = counter("retry_budget_refusals_total", "Further attempts that the retry budget did not allow at once: the "+
		"message went to its next stage, or waited.", "handler", "traffic", "to")
	deadLetters = counter("dead_letters_total", "Messages dead-lettered, confirmed by the publisher of dead letters.",
		"topic", "handler", "class", "reason")
	failedAgain = counter("redriven_failed_again_total", "Messages dead-lettered that had been redriven.",
		"topic", "handler", "class", "reason")
	discarded = counter("discarded_total", "Messages dropped because their error says so.",
		"topic", "handler", "reason")
	refused  = counter("placements_refused_total", "Refusals of a dead letter by a publisher.", "topic", "handler")
	unplaced = counter("unplaced_total", "Dead letters that all publishers refused; their messages were requeued.",
		"topic", "handler")
	outputs  = counter("output_errors_total", "Refusals of a handler's output by its publisher.", "topic", "handler")
	exceeded = counter("crash_limit_exceeded_total", "Messages that ended the process too often.", "handler")

	unfinished = counter("deliveries_unfinished_total",
		"Messages that came again after deliveries that ended with their process.", "handler")
	breakerChanges = counter("outage_changes_total", "Changes of a breaker, by the new state.", "handler", "state")
	waited         = histogram("outage_wait_seconds", []float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600},
		"How long a message was held by the breaker.", "handler")
	applied    = counter("messages_applied_total", "Messages that the idempotent receiver applied.", "consumer")
	duplicates = counter("duplicates_total", "Messages that the receiver absorbed because they were applied before.",
		"consumer")
	stale = counter("stale_total", "Messages that the receiver skipped because a later version was applied.",
		"consumer")
	requeue = counter("put_back_total",
		"Messages that the receiver requeued because another consumer has their key.", "consumer")
	leasesLost = counter("leases_lost_total", "Leases of the receiver that ended under a running handler.", "consumer")

	redriven = counter("redriven_total", "Letters that a drain or redrive handler brought back, by the topic that they "+
		"were published to.", "topic")
	quarantined     = counter("quarantined_total", "Letters that failed again after the most redrives.", "topic")
	redrivesRefused = counter("redrives_refused_total", "Letters whose topic is not allowed.", "topic")
	parked          = counter("parked_total", "Messages of dead-letter topics that were parked.", "topic")
	publishErrors   = counter("redrive_errors_total", "Refusals of a letter on its way back by the publisher.", "topic")

	// Purged is what a purge deleted.
	Purged = counter("purged_total", "What a purge deleted: keys of the receiver, or letters.", "purge")
	// PurgeFailures are purges that failed.
	PurgeFailures = counter("purge_failures_total", "Purges that failed, by what they delete.", "purge")
)

// The values of the label purge.
const (
	PurgeOfKeys    = "keys"
	PurgeOfLetters = "letters"
)

// IsOpen reports whether the values of a label come from messages or an application, and so are to be bounded. Those of
// the others are Spillway's own, and few.
func IsOpen(label string) bool {
	return label == "topic" || label == "handler" || label == "reason" || label == "consumer"
}
