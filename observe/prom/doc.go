// Package prom exports what a dead letter channel does as Prometheus metrics.
//
//	metrics, err := prom.New(prom.Config{Registerer: prometheus.DefaultRegisterer})
//	if err != nil {
//		return err
//	}
//	config.Observers = []spillway.Observer{metrics}
//	dlc, err := spillway.New(ctx, config)
//	if err != nil {
//		return err
//	}
//	err = metrics.Watch(ctx, dlc) // what is read at a scrape: breakers, stores, and the letters that wait
//
// Hooks that the configuration has are called too, after the metrics.
//
// # What is counted
//
// Most is counted where it happens, in this process. The rest is read at a scrape. The breakers, stores and retry
// budgets are read from Channel.Health. The letters, the delay store and the campaigns are sources in a database. Each
// instance of the service asks a source once within Config.Interval, however often is scraped.
//
// If the database does not answer, spillway_source_up is 0, and the series of the source keep their last values for
// 5 minutes. Then they end. The scrape itself goes on after 5 s.
//
// # Labels are bounded
//
// A label is never an id, a key, or the text of an error. Topics, handlers and reasons can come from messages and from
// applications: of each label at most Config.MaxValues values are kept. Further values are counted as "other", and
// spillway_label_values_folded_total says how often. A value is cut after 100 characters, and what is not UTF-8 in it
// is replaced.
//
// # What a success costs
//
// A handled message costs two readings of the clock and two additions, and no allocation. See "go run
// ./lab/measures".
//
// The package imports client_golang. No other package of the library does.
package prom
