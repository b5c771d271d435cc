// Package alerts has the alert rules of Spillway, for Prometheus 2.42 and newer: the file spillway.rules.yml. It loads
// as it is:
//
//	# prometheus.yml
//	rule_files: [spillway.rules.yml]
//
// The rules stand on the series of package prom, and on "up". docs/alerts.md has a runbook for each alert, which its
// annotation runbook_url names. Rules returns the file, for programs that provision a Prometheus.
//
// # Thresholds
//
// Each threshold is a recorded constant in the first group of the file, such as spillway:limit:oldest_letter_seconds.
// To change one, change its number: the alert and the line in the dashboard follow.
//
// # How the rules count
//
// Several instances of a service are one: a gauge of the letters is the same in all of them, and counters are added up.
// The labels instance and pod are dropped. All other labels stay, those of the scrape and those of the registry too.
//
// A counter without an earlier value counts in full if its job was scraped before. Otherwise the first event of a kind
// would make no alert: increase needs two values, and the first value of such a series is not 0. A restart of an
// instance, or of Prometheus, and a gap in the scrapes make no event.
//
// A state that cannot be seen makes an alert too: an instance that is not scraped, series that are gone, a store of
// letters that does not answer.
//
// # How they are tested
//
// testdata has a file of "promtool test rules" for each alert, with what fires and what does not. "make demo-observe"
// shows each alert fire and clear on a real router.
package alerts
