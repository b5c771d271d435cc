// Command observe shows each alert of package alerts fire and clear, on a real router under real faults.
//
// Two instances of a service run in this process. Their keys, letters and stages are in a SQLite file, and their
// messages in Go channels. A Prometheus beside them scrapes both, with the rules as they are in the repository, but in
// a hurry: every time in them is a sixtieth, and no limit is longer than 15 s. See Hurry.
//
// Then one fault after another happens: a bug in a handler, a redrive while the bug is still there, an API that is
// away, a database that refuses, a database that is unavailable, an instance that cannot be scraped. The time line says
// when a fault begins, which alert fires for it, when it ends, and when the alert clears.
//
// At the end every query of the dashboard and of the rules runs against that Prometheus. -panels prints the dashboard
// as text.
//
// The last line, JSON on standard output, says how many alerts fired and cleared, and how many queries failed or had no
// data. The exit status is 1 if one did not fire, did not clear, or a query failed, or one that should have data had
// none.
package main
