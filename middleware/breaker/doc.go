// Package breaker stops and probes while what a handler needs is unavailable, instead of draining its topic into the
// dead letters.
//
// A Breaker stands between Retry and the handler. While it is closed it lets every message pass, and costs one atomic
// load. When it finds an outage it opens: each message of the handler waits in the breaker, uncounted. The breaker
// returns no error for it, so nothing is retried, staged or dead-lettered. Then it lets one message try at a time, and
// lets the rate grow when one succeeds.
//
//	          away in a row, share, nothing succeeds
//	┌────────┐ ───────────────────────────────────────▶ ┌──────┐  the wait is over   ┌─────────┐
//	│ closed │                                          │ open │ ──────────────────▶ │ probing │
//	└────────┘                                          └──────┘ ◀────────────────── └─────────┘
//	    ▲                                                  ▲      failed: wait longer     │
//	    │ no message waits            fails again: longer  │                              │ succeeded
//	    │                             ┌─────────┐ ─────────┘                              │
//	    └──────────────────────────── │ ramping │ ◀───────────────────────────────────────┘
//	                                  └─────────┘  1, 2, 4, ... messages in 250 ms
//
//	Breaker.Open  ──▶ frozen ──▶ Breaker.Close: no probe, by hand alone
//
// # What opens it
//
// Errors that are transient or unknown count. A message counts once, however often it is tried. If it succeeds later,
// it counts as handled. Permanent and invalid errors, classify.NotNow and messages that went away count nothing.
//
//   - Three errors in a row that say that the downstream is unavailable (classify.Unavailable). Such a failure waits in
//     the
//     breaker from the first one on. Where one in ten messages has such errors and others succeed, it takes
//     Config.MinMessages in a row.
//   - Config.FailureRate of at least Config.MinMessages messages in Config.Window, or as many in a row.
//   - A whole Config.Window without a success, in which attempts failed: a downstream that hangs.
//
// A message that fails while others succeed is to blame itself. Its error goes to Retry and counts as usual. So a few
// poisonous messages, or one bad tenant among good ones, neither open the breaker nor are held by it.
//
// # How long
//
// Errors that say unavailable hold messages for as long as they come. Any other error can be the message's own. So
// errors that do not say unavailable hold the messages of a handler for Config.Doubt in all, which is a minute. Then
// messages that fail with them go on as without a breaker, and one Error line says so. The handler gets its time back
// after a success that comes a Config.Window after the latest such error, or after Config.MinMessages successes in a
// row.
//
// An outage is confirmed when three messages failed in it. If one or two messages alone, whose errors say unavailable,
// keep the breaker open for Config.Doubt, the one that failed goes to its next stage, and another message is tried.
//
// # How a message waits
//
// A message is held in the goroutine that its subscriber gave it, first come first served. It is held at most for as
// long as its adapter allows, and is then requeued, uncounted. A subscriber of Spillway that can stop taking messages
// does so instead.
//
// # Several instances
//
// Each instance decides for itself. With a Store its instances share outages and freezes through a table: what one
// finds, the others hold too, and its first success lets them go on in a ramp. If the Store is unavailable, each
// instance decides for itself again. Package sqlshare has a Store on a database.
//
// # What is not promised
//
//   - A handler that does everything wrong looks like an outage: its messages wait for Config.Doubt. Then they are
//     dead-lettered.
//   - A downstream whose errors do not say unavailable is held for Config.Doubt alone. Mark such errors with
//     classify.Unavailable.
//   - Until the breaker opens, errors that do not say unavailable use up attempts. A downstream that hangs, or whose
//     errors are
//     unknown, costs a few messages their attempts: they go to a stage, or without stages to the dead letters.
//   - A handler that never returns holds the breaker's probe for 30 seconds. Then another message is tried beside it.
//
// # How it is built
//
// A fuse is the breaker of one handler and scope, behind one mutex. What depends on the state is a method of closed,
// open, halfOpen and ramping, in states.go. A window counts what failed and what passed. A passage is one message in
// the breaker.
package breaker
