// Package conformance tests a pub/sub against Spillway's promises, as Watermill's pubsub/tests does against
// Watermill's. It runs a real router, protected by a real dead letter channel, over the pub/sub that a Target
// describes. Each feature is a subtest, which accounts for every message by its id:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Target{
//			Name:       "my broker",
//			Publisher:  func(t testing.TB) message.Publisher  { ... },
//			Subscriber: func(t testing.TB, group string) message.Subscriber { ... },
//			Pins:       map[string]string{"D9": "K18: no SQL source"},
//		})
//	}
//
// A subtest is named by its feature's id. K1 to K20 are the sentences that a pub/sub must keep. P1 to P7 are promises,
// R is retry, C is classes of errors, and D is dead letters. I is the idempotent receiver, V is redrive, H is hostile
// input, and F is faults.
//
// # The contract
//
// docs/pubsub.md says in numbered sentences, K1 to K20, what a pub/sub must do. Each row rests on some of them, and a
// row that fails logs them. What a pub/sub does not offer is pinned, with the sentence that it does not keep, and the
// reason. A pin is for a row, such as "F2", or for one case of a row, such as "H1/id of 300 bytes". The suite does not
// run what is pinned and records it as pinned. A pin of an unknown row, case or sentence fails the test.
//
// If SPILLWAY_CONFORMANCE_OUT is set, each result is appended to that file as a JSON line. "make conformance" prints
// the lines as a matrix.
//
// # Faults
//
// Rows of faults run consumers in processes of their own. The suite kills these processes, cuts them off from the
// broker through a proxy, and lets other processes join them. Such a process runs the calling test again, up to Run,
// which then consumes until the suite ends it. Three things follow:
//
//   - What the test does before Run is done once in each process.
//   - The broker must be a process of its own, whose address comes from outside, such as from the environment.
//   - A test built with -race calls "go test -c" and runs consumers built without it. The reason is that clients may
//     have data races of their own when they reconnect.
//
// After a fault, each message is in one place: in the effects table, once; or among the dead letters; or still in the
// source. When the fault has ended, no message is in the source. F2 and R12b restart the broker, so nothing else may
// use it but suites with the same Target.Beside.
//
// # Requirements
//
// The suite needs a subscriber with consumer groups, or one that delivers to every new subscriber what was published
// before. With the second kind V3 cannot be tested. A pub/sub that lives in one process has no faults: pin F1 to F10,
// D10, R12b and R12c. Effects are in SQLite, unless the Target has a Database. Every feature has topics of its own, so
// a Target need not clean up between features.
//
// # Features
//
//	K1   confirms
//	K2   redelivers
//	K3   redelivery time
//	K4   acks only on Ack
//	K5   groups
//	K6   order
//	K7   no deduplication
//	K8   sizes
//	K9   metadata
//	K10  names
//	K11  context
//	K12  keeps
//	K13  remembers
//	K14  unreadable
//	K15  id and payload
//	K16  topics
//	K17  instances
//	K20  counts
//	P1   a refused dead letter keeps its message
//	P1b  letters confirmed in any order, twice, late, never
//	P2   the original survives its handler
//	P3   shutdown in a backoff wait is no failure
//	P4   messages that always fail do not block the others
//	P7   effects once over duplicates, restarts, redrives
//	R1   retry in process, bounded
//	R2   each attempt gets the message as it arrived
//	R3   no wait past the message's deadline
//	R4   an error's retry-after is honoured
//	R5   retry later over stage topics; live never waits
//	R5b  held beyond the redelivery time: one letter each
//	R6   jitter on stages; no message is early
//	R7   stages per handler
//	R8   any delay over a table
//	R9   same handler and outputs in every stage
//	R10  the message survives its stages
//	R11  retries keep to a budget; none is set aside for it
//	R12a downstream away: held, probed, none set aside
//	R12b the server of messages and keys killed
//	R12c join, SIGKILL and deploy during an outage
//	R12d 3 % poison opens no breaker
//	R12e a downstream that hangs
//	R12f half of the keys fail, the others go on
//	R12g a handler frozen by hand
//	R13  order by key through failures and restarts
//	R15  many keys at a time, each in order
//	C5   stages by class and retry-after
//	D1   the letter records message, origin and failure
//	D2   each class of errors goes to its topic
//	D3   names of dead-letter topics
//	D4   a letter's publish: retried, shrunk, fallback
//	D5   a missing destination is an error at start-up
//	D6   added metadata stays in its budget
//	D7   letters of Watermill's PoisonQueue
//	D8   a message that cannot be unmarshalled
//	D9   one SQL transaction for everything
//	D10  delivery limit over process deaths
//	D11  guards: expired, circling, incomplete, rejected
//	D12  a dead letter is not dead-lettered again
//	D13  a failed handler's outputs are not published
//	D15  an undeliverable output dead-letters its source
//	I2   key, writes and outputs commit together
//	I4   outputs survive a failed publish
//	V1   letters come back through the router
//	V1b  letters enter at the first stage
//	V2   redrive keeps its rate
//	V3   a letter redriven too often is quarantined
//	V4   redrive strips the failure, keeps origin and history
//	V8   redrive publishes to allowed topics only
//	H1   hostile ids, payloads and metadata
//	H2   hostile handlers
//	H3   the broker's own hostile messages
//	H4   an output of 2 MiB
//	H5   many publishers at once
//	H6   hostile times and numbers in a stage
//	H7   a stage topic that refuses, is deleted, or cannot be created
//	H8   closing while messages wait in stages
//	H9   messages in stages that no handler consumes
//	H10  letters of what the pub/sub would change
//	H11  messages that fill the broker's limit
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
