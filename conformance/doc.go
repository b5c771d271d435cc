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
// redrive, H what is hard to bear. What a broker does not offer is pinned, with the reason: a pinned feature is not run
// and stands in the matrix as such. A pin that names no feature is a failure.
//
// With SPILLWAY_CONFORMANCE_OUT each result is appended to that file as a JSON line; make conformance makes the matrix of
// them.
//
// The suite needs a subscriber with consumer groups, or one that gives every new subscriber what was published before, and
// uses SQLite for the effects. Every feature gets topics of its own, so targets need not clean up between them.
package conformance
