// Package sequence keeps the messages of a key in the order of their source while one of them must be tried later:
// docs/order.md is the protocol, and its words are used here.
//
//	chain: a message fails ──▶ Delivery.Park ──▶ a row of spillway_parked ──▶ Owner: its lane waits
//	subscriber: Owner.Next ──▶ Owner.Heads ──▶ the handler again ──▶ Owner.Delete
//	poison.Queue: a letter is confirmed ──▶ Settle ──▶ a row of spillway_keys without an effect
//
// A Store is the table. An Owner is what the process that has a source knows of its sequences: it looks once, behind
// the source's position, and from then on a message whose sequence is not parked costs no query. A Delivery is one
// message on its way through the chain. An Ordering is all that a channel has of this, and is given to subscribers in
// the context of Subscribe.
package sequence
