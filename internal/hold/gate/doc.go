// Package gate stops a subscription from taking messages that nothing could be done with: what the handler needs is
// away.
//
// A subscriber has one Valve for each subscription, and waits at it before it takes a message or begins a transaction.
// The context of each message holds the Valve (With). A part that finds the downstream away shuts it (Of, then Shut),
// and gives the message back.
//
//	subscriber                          part
//	    │ Wait: open, one atomic load      │
//	    │ With(ctx, valve) ──── message ──▶│ Of(ctx).Shut(reopen)
//	    │ ◀──────────────────── nack ──────│
//	    │ Wait: until reopen is closed     │
//	    │ With(ctx, valve) ──── message ──▶│ the next attempt, or Shut again
//
// The part closes reopen when a message may come: for the next attempt, or because the downstream is back. Several
// parts can shut one Valve, and several handlers can: it is open when all their channels are closed. A Valve starts no
// goroutine.
//
// A message that is requeued in this way has not failed. The subscriber notes Shuts when it delivers a message. If
// the number is another one when the message comes back, the subscriber does not count the delivery, and needs no
// backoff beside the Valve.
package gate
