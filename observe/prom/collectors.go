package prom

import "github.com/prometheus/client_golang/prometheus"

// collectors makes the metrics of what hooks tell.
func (m *Metrics) collectors() []prometheus.Collector {
	m.attempts = newAttempts(m.labels, m.config.MaxValues, seconds)
	all := []prometheus.Collector{m.labels.folded, m.attempts}
	counter := func(into **prometheus.CounterVec, name, help string, labels ...string) {
		*into = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
		all = append(all, *into)
	}
	gauge := func(into **prometheus.GaugeVec, name, help string, labels ...string) {
		*into = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
		all = append(all, *into)
	}
	histogram := func(into **prometheus.HistogramVec, name string, buckets []float64, help string, labels ...string) {
		*into = prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Buckets: buckets,
			Help: help}, labels)
		all = append(all, *into)
	}
	counter(&m.retries, "retries_total", "Messages that are to be handled again: in place, or in a stage, whose number "+
		"is the stage.", "topic", "handler", "place", "stage")
	counter(&m.reentries, "reentries_total", "Messages that came out of a stage, whose number is the stage; 0 are "+
		"redriven ones.", "topic", "handler", "stage")
	histogram(&m.lateness, "stage_lateness_seconds", []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		"How late a message came out of its stage.", "topic", "handler", "stage")
	counter(&m.budget, "retry_budget_refusals_total", "Further attempts that the retry budget did not allow at once: "+
		"the message went to its next stage, or waited.", "handler", "traffic", "to")
	counter(&m.deadLetters, "dead_letters_total", "Messages dead-lettered, confirmed by the publisher of dead letters.",
		"topic", "handler", "class", "reason")
	counter(&m.failedAgain, "redriven_failed_again_total", "Messages dead-lettered that had been redriven.", "topic",
		"handler", "class", "reason")
	counter(&m.discarded, "discarded_total", "Messages dropped because their error says so.", "topic", "handler",
		"reason")
	counter(&m.refused, "placements_refused_total", "Refusals of a dead letter by a publisher.", "topic", "handler")
	counter(&m.unplaced, "unplaced_total", "Dead letters that all publishers refused; their messages were requeued.",
		"topic", "handler")
	counter(&m.outputs, "output_errors_total", "Refusals of a handler's output by its publisher.", "topic", "handler")
	counter(&m.exceeded, "crash_limit_exceeded_total", "Messages that ended the process too often.", "handler")
	counter(&m.unfinished, "deliveries_unfinished_total", "Messages that came again after deliveries that ended with "+
		"their process.", "handler")
	counter(&m.breaker, "outage_changes_total", "Changes of a breaker, by the new state.", "handler", "state")
	histogram(&m.waited, "outage_wait_seconds", []float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600},
		"How long a message was held by the breaker.", "handler")
	counter(&m.applied, "messages_applied_total", "Messages that the idempotent receiver applied.", "consumer")
	counter(&m.duplicates, "duplicates_total", "Messages that the receiver absorbed because they were applied before.",
		"consumer")
	counter(&m.stale, "stale_total", "Messages that the receiver skipped because a later version was applied.",
		"consumer")
	counter(&m.putBack, "put_back_total", "Messages that the receiver requeued because another consumer has their key.",
		"consumer")
	counter(&m.leasesLost, "leases_lost_total", "Leases of the receiver that ended under a running handler.",
		"consumer")
	counter(&m.redriven, "redriven_total", "Letters that a drain or redrive handler brought back, by the topic that "+
		"they were published to.", "topic")
	counter(&m.quarantined, "quarantined_total", "Letters that failed again after the most redrives.", "topic")
	counter(&m.redrivesRefused, "redrives_refused_total", "Letters whose topic is not allowed.", "topic")
	counter(&m.parked, "parked_total", "Messages of dead-letter topics that were parked.", "topic")
	counter(&m.publishErrors, "redrive_errors_total", "Refusals of a letter on its way back by the publisher.", "topic")
	counter(&m.purged, "purged_total", "What a purge deleted: keys of the receiver, or letters.", "purge")
	counter(&m.purgeFailures, "purge_failures_total", "Purges that failed, by what they delete.", "purge")
	gauge(&m.purgedAt, "purge_last_run_timestamp_seconds",
		"When a purge of this process succeeded last, or was set up, "+
			"as Unix time.", "purge")
	gauge(&m.purgeEvery, "purge_interval_seconds", "The time from the end of one purge to the next.", "purge")
	return all
}
