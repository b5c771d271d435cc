// Package conformance holds a pub/sub to Spillway's promises, as Watermill's pubsub/tests holds it to Watermill's. It
// runs a real router, protected by a real dead letter channel, over a pub/sub that a Target describes, and checks feature
// by feature what becomes of each message, counted by id:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Target{
//			Name:       "my broker",
//			Publisher:  func(t testing.TB) message.Publisher  { ... },
//			Subscriber: func(t testing.TB, group string) message.Subscriber { ... },
//			Pins:       map[string]string{"D9": "no SQL source"},
//		})
//	}
//
// A subtest has the id of its feature: P1 to P7 are promises, R is retry, C what becomes of each class of errors, D dead
// letters, I the idempotent receiver, V redrive, H what is hard to bear, F faults. What a broker does not offer is pinned,
// with the reason: a pinned feature is not run and stands in the matrix as such. A pin that names no feature is a failure.
//
// With SPILLWAY_CONFORMANCE_OUT each result is appended to that file as a JSON line; make conformance makes the matrix of
// them.
//
// Faults strike consumers in processes of their own, which are killed, cut off from the broker and joined by others, while
// a proxy stands before the broker, in the test's process. Such a process is the same test once more, up to
// Run, which consumes there until it is told to end. So what the test does before Run is done several times, the broker
// must be a process of its own, and its address must come from outside, the environment for one. A test built with -race
// starts one built without, for which it calls "go test -c": clients may have races of their own when they dial again.
// After a fault all messages are counted by id: each is in the effects table, once, or among the dead letters, or still
// in the source; and when the fault is mended none is in the source. F2 restarts the broker, so nothing else may use it.
//
// The suite needs a subscriber with consumer groups, or one that gives every new subscriber what was published before, and
// uses SQLite for the effects. Every feature gets topics of its own, so targets need not clean up between them. Of the
// second kind a quarantine (V3) cannot be shown, and a pub/sub that lives in one process has no faults (F1 to F10, D10).
//
// # Features
//
//	P1   a refused dead letter keeps its message
//	P2   the original survives its handler
//	P3   shutdown in a backoff wait is no failure
//	P4   deadly messages do not stop the good ones
//	P7   effects once over duplicates, restarts, redrives
//	R1   retry in process, bounded
//	R2   each attempt gets the message as it arrived
//	R3   no wait past the message's deadline
//	R4   an error's retry-after is honoured
//	R5   later over stage topics, live never waits
//	R6   jitter on stages, never early
//	R7   stages per handler
//	R8   any delay over a table
//	R9   same handler and outputs in every stage
//	R10  the message survives its stages
//	C5   stages by class and retry-after
//	D1   the letter tells the whole story
//	D2   each class goes its way
//	D3   naming
//	D4   publish retried, shrunk, fallback
//	D5   a missing destination is an error at start-up
//	D6   what is added stays in its budget
//	D7   letters of Watermill's PoisonQueue
//	D8   what cannot be unmarshalled is set aside
//	D9   one SQL transaction for everything
//	D10  delivery limit over process deaths
//	D11  expired, going in circles, incomplete, rejected
//	D12  no dead letters of dead letters
//	D13  a failed handler's outputs stay
//	D15  an undeliverable output sets its source aside
//	I2   key, writes and outputs commit together
//	I4   outputs survive a failed publish
//	V1   letters come back through the router
//	V1b  letters enter at the first stage
//	V2   redrive keeps its rate
//	V3   redriven too often: quarantine
//	V4   failure stripped, origin and history kept
//	V8   only to topics of the allow-list
//	H1   hostile ids, payloads and metadata
//	H2   hostile handlers
//	H3   the broker's own hostile messages
//	H4   an output of 2 MiB
//	H5   many publishers at once
//	H6   hostile times and numbers in a stage
//	H7   a stage that takes nothing, or cannot be
//	H8   closing while messages wait in stages
//	H9   messages in stages without a handler
//	F1   killed at each step between receipt and ack
//	F2   broker restarted between handling and ack
//	F3   dead-letter topic deleted while running
//	F4   dead-letter topic read-only
//	F5   dead-letter broker cut off, slow, silent
//	F6   another instance joins in a backoff wait
//	F7   connection lost in the handler
//	F8   another instance joins under a busy handler
//	F9   killed at each step of a stage
//	F10  another instance joins while stages wait
package conformance
