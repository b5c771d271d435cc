package chain

import (
	"context"
	"errors"
	"hash/maphash"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
)

// Next is what becomes of a message after a part.
type Next uint8

// From the handler outward, the parts return:
//
//	receiver     Requeue while its store is unavailable, or another delivery has the key. Failed and Done as the handler says.
//	breaker      Nothing while it holds the message: it calls inward again. Requeue for a message that it held for as long
//	             as it may, and Stage for one that alone keeps it open. Any other outcome as it is.
//	Retry        Nothing while it tries again after Failed. It stops with Stage or DeadLetter, by the class of the error,
//	             if the attempts are used up or no wait is allowed. It stops with Stage after the first failure if the
//	             handler has stages and no Attempts are set for the class, or if the budget is spent and there is a next
//	             stage. Requeue for a message that it held for as long as it may.
//	stages       After Failed and Stage, the message is published to its next stage: Done. DeadLetter if no stage is left,
//	             or if the error cannot be retried. Requeue if the stage does not take the message for now.
//	guard        DeadLetter for a message that must not reach the handler.
//	crash limit  DeadLetter for a message that ended too many processes, and Requeue while that is not known.
//	queue        After Failed, Stage and DeadLetter, the message is dead-lettered: Done. Failed if no publisher takes the
//	             letter, and Requeue if the publishers are unavailable.
//
// Every part passes a Requeue on. No part acts on a message that its handler nacked, or that failed inside of a
// receiver around the chain: see Call.Nacked and Call.Claimed.
const (
	// Done means that the message is handled, or is placed in a stage or as a dead letter. The router acks it.
	Done Next = iota
	// Failed means that an attempt failed, and no part has decided yet.
	Failed
	// Stage means that the message needs no further attempt in place. It goes to its next stage, or without one to the
	// dead letters.
	Stage
	// DeadLetter means that the message needs no further attempt at all.
	DeadLetter
	// Requeue means that the message has not failed, or went away. The router nacks it, and no part counts it.
	Requeue
)

func (n Next) String() string {
	return [...]string{"done", "failed", "stage", "dead letter", "requeue"}[n]
}

// Outcome is what a part returns to the part further out, beside the messages that the handler produced. These are nil
// unless Next is Done. The zero value is Done.
type Outcome struct {
	Next Next
	// Why is the error that led to Next. It is nil if Next is Done.
	Why error
}

// OutcomeOf returns the outcome of a handler, or of work for a message that returned err: Done, Failed, or Requeue for
// an error of Requeued.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Outcome{}
	}
	if errors.As(err, new(requeued)) {
		return Outcome{Next: Requeue, Why: err}
	}
	return Outcome{Next: Failed, Why: err}
}

// GaveUp returns the outcome of a message that is not tried again in place.
func GaveUp(failure *classify.Failure) Outcome {
	if attempts.CanSucceed(failure.Verdict.Class) {
		return Outcome{Next: Stage, Why: failure}
	}
	return Outcome{Next: DeadLetter, Why: failure}
}

// Gone returns the outcome of a message that went away: see Call.Gone.
func Gone(err error) Outcome { return Outcome{Next: Requeue, Why: Aborted(err)} }

// Left reports whether the message of o went away, or did not fail.
func (c *Call) Left(o Outcome) bool { return o.Next == Requeue || c.Gone() }

// Gone reports whether the message went away rather than failed: its context was cancelled without an ack. A deadline
// that passed is a failure. An ack by the handler ends the context too, and the message has not gone away.
func (c *Call) Gone() bool { return errors.Is(c.Ctx.Err(), context.Canceled) && !c.Acked() }

// Leaving reports whether a wait on behalf of the message is in vain: it is gone, or its subscription takes no more and
// it is to come again. A message whose attempt ended by itself meanwhile has not gone away.
func (c *Call) Leaving() bool { return c.Gone() || graceful.Began(c.Ctx) && !c.Acked() }

// Placed is called when the dead letter of a message that failed with err has its place. It calls the method Placed of
// what err wraps.
func Placed(err error) {
	for err := range errs.All(err) {
		if waits, ok := err.(interface{ Placed() }); ok {
			waits.Placed()
		}
	}
}

// Requeued returns the error that gives back a message that did not fail, to come again later.
func Requeued(err error) error { return requeued{Aborted(err)} }

// requeued is the error of Requeued. A chain further out recognises it, if parts are attached one by one.
type requeued struct{ error }

func (e requeued) Unwrap() error { return e.error }

// Aborted returns the error of a message that went away: nothing is published and nothing counted. The error is a
// context.Canceled too, which the router does not log as a failure.
func Aborted(err error) error {
	if IsAborted(err) {
		return err
	}
	return &classify.Failure{
		Err:     errors.Join(context.Canceled, err),
		Verdict: classify.Verdict{Class: classify.ClassAborted},
	}
}

// IsAborted reports whether err gives its message back, uncounted: it is one of Aborted or Requeued.
func IsAborted(err error) bool {
	failure, ok := errs.Find[*classify.Failure](err)
	return ok && failure.Verdict.Class == classify.ClassAborted
}

// Fingerprint is a hash of a message as it was sent: its id, payload and metadata. It is of this process.
type Fingerprint [2]uint64

var fingerprintSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Fingerprint returns that of the message. It reports false for a message without an id: messages with equal payloads
// can be different ones.
func (c *Call) Fingerprint() (of Fingerprint, ok bool) {
	if c.uuid == "" {
		return of, false
	}
	for i := range of {
		var h maphash.Hash
		h.SetSeed(fingerprintSeeds[i])
		maphash.WriteComparable(&h, c.uuid)
		_, _ = h.Write(c.payload)
		of[i] = h.Sum64()
		for _, p := range c.metadata { // in any order
			if Added(p.key, p.value) {
				continue
			}
			h.Reset()
			maphash.WriteComparable(&h, p)
			of[i] += h.Sum64()
		}
	}
	return of, true
}
