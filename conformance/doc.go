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
// A subtest has the id of its feature: P1 to P7 are promises, R is retry, D dead letters, I the idempotent receiver, V
// redrive, H what is hard to bear, F faults. What a broker does not offer is pinned, with the reason: a pinned feature is not run
// and stands in the matrix as such. A pin that names no feature is a failure.
//
// With SPILLWAY_CONFORMANCE_OUT each result is appended to that file as a JSON line; make conformance makes the matrix of
// them.
//
// Faults strike consumers in processes of their own, which are killed, cut off from the broker and joined by others, while
// a proxy stands before the broker (toxiproxy, in the test's process). Such a process is the same test once more, up to
// Run, which consumes there until it is told to end. So what the test does before Run is done several times, the broker
// must be a process of its own, and its address must come from outside, the environment for one. A test built with -race
// starts one built without, for which it calls "go test -c": clients may have races of their own when they dial again.
// After a fault all messages are counted by id: each is in the effects table, once, or among the dead letters, or still
// in the source; and when the fault is mended none is in the source. F2 restarts the broker, so nothing else may use it.
//
// The suite needs a subscriber with consumer groups, or one that gives every new subscriber what was published before, and
// uses SQLite for the effects. Every feature gets topics of its own, so targets need not clean up between them.
package conformance
