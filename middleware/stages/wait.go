package stages

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/poison"
)

// waiter consumes a stage topic for its handler. It holds each message until the message is due, before the router gets
// it. So a wait is in no handler's transaction, counts as no attempt, and ends at once when the router closes. A
// subscriber that knows package due holds the messages itself.
type waiter struct {
	sub    *sharedSubscriber
	at     *stageTopic
	holds  bool            // sub holds messages until they are due
	closed context.Context // ends when the router closes
	close  context.CancelFunc
}

func newWaiter(t *stageTopic, sub *sharedSubscriber) *waiter {
	w := &waiter{sub: sub, at: t}
	_, w.holds = sub.Subscriber.(due.Subscriber)
	w.closed, w.close = context.WithCancel(context.Background())
	return w
}

func (w *waiter) log() watermill.LoggerAdapter { return w.at.of.stages.config.Logger }

// ending is what ends the waits for a message.
type ending struct{ router, taking context.Context }

func (e ending) began() bool { return e.router.Err() != nil || e.taking.Err() != nil }

// endingOf returns what ends the waits for a message with the context session. That of a subscriber that holds messages
// itself does not end before its subscription takes no more, and costs no context then.
func (w *waiter) endingOf(router, session context.Context) (ending, context.CancelFunc) {
	if taking := graceful.TakingOf(session); w.holds && taking != nil {
		return ending{router, taking}, func() {}
	}
	taking, stop := graceful.Waits(session)
	return ending{router, taking}, stop
}

// hold passes msg on when it is due. It nacks msg if router, or the message's own context, ends before.
func (w *waiter) hold(router context.Context, msg *message.Message, out chan<- *message.Message) {
	if hold.RedeliveryIn(msg.Context()) == nil { // the subscriber's contexts are its own
		msg.SetContext(hold.WithRedelivery(msg.Context(), w.sub.redelivery))
	}
	session := msg.Context() // the router gives msg another one
	ends, stop := w.endingOf(router, session)
	defer stop()
	handed, arrived, ready := false, due.Arrived(msg.Context()), time.Time{}
	leave, claimed := w.claim(ends, msg)
	defer func() {
		if !handed { // no effect on an acked message
			msg.Nack()
		}
		leave(outcomeOf(msg, session, router), ready.Sub(arrived))
	}()
	if !claimed {
		return
	}
	stage := w.stageOf(msg)
	again, ok := w.untilDue(ends, msg, stage, arrived)
	if ready = time.Now(); !ok {
		return
	}
	if again {
		w.again(ends, msg, stage)
		return
	}
	reentry := &chain.Reentry{Handler: w.at.of.name, As: w.at.of.inRouter(), Topic: w.at.topic, Stage: stage.Number,
		Held: time.Since(arrived)}
	hidden.Of(w.at.of.stages.queue).FromStage(msg)
	msg.SetContext(chain.WithReentry(session, reentry))
	w.onReentry(msg, stage)
	select {
	case out <- msg:
		handed = true
	case <-ends.router.Done():
		return
	case <-ends.taking.Done():
		return
	}
	select { // even if its session has ended: a copy of it may wait for its outcome
	case <-msg.Acked():
	case <-msg.Nacked():
	case <-router.Done():
		w.untilSettled(msg, session)
	}
}

// untilSettled waits for a handler that may finish although the router closes.
func (w *waiter) untilSettled(msg *message.Message, session context.Context) {
	if graceful.TakingOf(session) == nil {
		return
	}
	select {
	case <-msg.Acked():
	case <-msg.Nacked():
	case <-session.Done():
	}
}

// dueAt returns the time until which a subscriber that knows package due holds a message.
func (w *waiter) dueAt(msg *message.Message, arrived time.Time) time.Time {
	until, _ := w.until(msg.Context(), w.stageOf(msg), arrived)
	return until
}

// untilDue waits until the message is due, or goes round. It returns false if the wait ends before.
func (w *waiter) untilDue(ends ending, msg *message.Message, stage deadletter.Stage,
	arrived time.Time) (again, ok bool) {
	for {
		shorter := w.sub.redelivery.Changed()
		until, again := w.until(msg.Context(), stage, arrived)
		rest := time.Until(until)
		if rest <= 0 {
			return again, !ends.began()
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
			return again, !ends.began()
		case <-shorter:
			timer.Stop()
		case <-ends.router.Done():
			timer.Stop()
			return false, false
		case <-ends.taking.Done():
			timer.Stop()
			return false, false
		}
	}
}

// both ends with either context.
func both(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}

func (w *waiter) onReentry(msg *message.Message, stage deadletter.Stage) {
	hook := w.at.of.stages.config.Hooks.OnReentry
	if hook == nil {
		return
	}
	event := Reentry{ID: msg.UUID, Handler: w.at.of.name, Topic: w.at.of.topic, StageTopic: w.at.topic,
		Stage: stage.Number}
	if stage.Number > 0 && !stage.DueAt.IsZero() {
		event.Late = max(time.Since(stage.DueAt), 0)
	}
	safecall.Hook(w.log(), "stages.OnReentry", func() { hook(msg.Context(), event) })
}

// stageOf reads the stage that msg waits in from its metadata, and corrects what cannot be true. After a change of the
// configuration, a number that this topic does not serve becomes the nearest one. A message that names no stage has not
// waited yet: it is a dead letter that re-enters, with all stages before it.
func (w *waiter) stageOf(msg *message.Message) deadletter.Stage {
	stage := letters.StageOf(msg)
	number := 0
	_, waited := msg.Metadata[poison.KeyRetryDueAt]
	if _, named := msg.Metadata[poison.KeyRetryStage]; named || waited {
		number = w.nearest(stage.Number)
	}
	if stage.Number != number && stage.Number != 0 {
		eventStageRemoved.Write(w.log(), nil, logging.Fields{
			logging.Handler: w.at.of.name, logging.StageTopic: w.at.topic, logging.Stage: stage.Number,
			"nearest": number,
		})
	}
	stage.Number = number
	if waited && stage.DueAt.IsZero() { // the value is no time: never early
		stage.DueAt = time.Now().Add(w.at.delay)
	}
	return stage
}

func (w *waiter) nearest(number int) int {
	if len(w.at.numbers) == 0 || number == 0 && w.at.delay == 0 {
		return w.at.of.stages.nearest(number)
	}
	return min(max(number, w.at.numbers[0]), w.at.numbers[len(w.at.numbers)-1])
}

// until returns the time to hold a message until that arrived at a time, and whether it is published to its topic again
// then. No message is held for longer than fits says. So a due time that is garbage, or from a wrong clock, delays its
// message by that much at most.
func (w *waiter) until(ctx context.Context, stage deadletter.Stage, arrived time.Time) (until time.Time, again bool) {
	now := time.Now()
	if w.at.delay == 0 || !stage.DueAt.After(now) {
		return now, false
	}
	hold := w.fits(ctx, arrived)
	longest := arrived.Add(hold)
	if stage.HoldUntil.IsZero() || !stage.HoldUntil.Before(stage.DueAt) {
		again = stage.DueAt.After(longest) && hold < w.at.of.stages.longest(w.at.delay)
		return earlier(stage.DueAt, longest), again
	}
	again = stage.DueAt.Sub(now) < 2*w.at.of.stages.config.longest()
	return earlier(stage.HoldUntil, longest), again
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// minHold keeps messages from going round ever faster as their ack deadline comes near. They are requeued when it
// passes.
const minHold = time.Second

// fits returns how long a message with ctx waits before it goes round. It is stageTopic.holds, or less if its adapter
// allows less. It is half of the time that is left before an ack deadline, or minHold in a transaction.
func (w *waiter) fits(ctx context.Context, now time.Time) time.Duration {
	holds := evenly(w.at.longest, min(w.at.maxHold(), hold.MaxHold(ctx, 0)))
	hold := holds
	if hold > minHold && chain.TransactionOf(ctx) != nil {
		hold = minHold
		w.warn(eventStageInTransaction, hold)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(now)/2 < hold {
		hold = max(deadline.Sub(now)/2, min(minHold, holds))
		w.warn(eventStageDeadline, hold)
	}
	return hold
}

// warn logs once that the stage does not suit its subscriber.
func (w *waiter) warn(event *logging.Event, hold time.Duration) {
	w.at.warned.Do(func() {
		event.Write(w.log(), errors.New("set stages.Config.Store"),
			logging.Fields{logging.Handler: w.at.of.name, logging.StageTopic: w.at.topic, "delay": w.at.delay,
				logging.Held: hold})
	})
}

// again publishes msg to the end of its topic.
func (w *waiter) again(ends ending, msg *message.Message, stage deadletter.Stage) {
	taken := false
	defer func() { // even if the publisher ends the goroutine
		if taken {
			msg.Ack()
			return
		}
		ctx, cancel := both(ends.router, ends.taking)
		defer cancel()
		timing.Wait(ctx, time.Second) // some subscribers redeliver at once, and without end
		msg.Nack()
	}()
	round := msg.Copy()
	round.SetContext(chain.Returning(context.WithoutCancel(msg.Context())))
	hold := time.Now().Add(w.at.holds())
	if !stage.DueAt.IsZero() { // a value that is no time would be put off each time
		round.Metadata.Set(poison.KeyRetryDueAt, stage.DueAt.UTC().Format(time.RFC3339Nano))
	}
	delete(round.Metadata, poison.KeyRetryHoldUntil)
	if hold.Before(stage.DueAt) {
		round.Metadata.Set(poison.KeyRetryHoldUntil, hold.UTC().Format(time.RFC3339Nano))
	}
	round.Metadata.Set(poison.KeyRetryEntry, nextEntry(round.Metadata[poison.KeyRetryEntry]))
	err := safecall.Call("publisher", func() error {
		return w.at.of.stages.config.Publisher.Publish(w.at.topic, round)
	})
	if taken = err == nil; !taken {
		eventStageRoundRefused.Write(w.log(), err,
			logging.Fields{logging.Handler: w.at.of.name, logging.StageTopic: w.at.topic, logging.MessageID: msg.UUID})
	}
}

// latch opens when a stage has subscribed to its topic. Some pub/subs lose messages that are published before, and the
// router may start the live handler first.
type latch struct {
	once   sync.Once
	opened chan struct{}
}

func newLatch() *latch { return &latch{opened: make(chan struct{})} }

func (l *latch) open() { l.once.Do(func() { close(l.opened) }) }

// maxSubscribing is more than the handlers of a router need to subscribe.
const maxSubscribing = 10 * time.Second

// await waits until the latch opens, and reports whether it did before maxSubscribing passed or ctx ended.
func (l *latch) await(ctx context.Context) bool {
	select {
	case <-l.opened: // nearly always
		return true
	default:
	}
	timer := time.NewTimer(maxSubscribing)
	defer timer.Stop()
	select {
	case <-l.opened:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// A message fails.
var (
	// each: nothing
	eventHandlerDelayed = logging.InfoEvent("handler_delayed",
		"The handler failed; the message waits for its next attempt")
	// each: Ask for less, or add a longer stage.
	eventWaitTooLong = logging.InfoEvent("wait_too_long",
		"An error asks for a longer wait than any stage allows; its message is dead-lettered")
)

// Stages and the delay store.
var (
	// each: Look why the stage refuses it.
	eventStageCondemned = logging.ErrorEvent("stage_condemned",
		"A message cannot go into its stage; it is dead-lettered")
	// each: Repair the stage topic.
	eventStageRefused = logging.ErrorEvent("stage_refused", "The stage did not take the message; it is requeued")
	// start: Add the handlers with `Stages.AddHandler`, or leave the stages out.
	eventStagesUnused = logging.ErrorEvent("stages_unused",
		"There are retry stages, and no handler has them: a message that fails is dead-lettered after its attempts. "+
			"Add handlers with Stages.AddHandler or AddConsumerHandler, or leave the stages out")
	// start: Add the handler, or list the delay as `Retired`.
	eventStageAbandoned = logging.ErrorEvent("stage_abandoned",
		"Messages wait in a stage topic that no handler of this process consumes: add their handler, list a removed "+
			"delay as Retired, or check that another service consumes it")
	// each: nothing
	eventStageRemoved = logging.InfoEvent("stage_removed",
		"A message waits in a stage that was removed; it goes on in the nearest stage")
	// start: Set `stages.Config.Store`.
	eventStageInTransaction = logging.ErrorEvent("stage_in_transaction",
		"The subscriber of a stage topic holds a transaction open for each waiting message; messages go round every "+
			"second and come late")
	// start: Set `stages.Config.Store`, or a longer ack deadline.
	eventStageDeadline = logging.ErrorEvent("stage_deadline",
		"A stage is longer than its subscriber's ack deadline; messages go round, come late, and hold a transaction "+
			"while they wait")
	// each: Repair the stage topic.
	eventStageRoundRefused = logging.ErrorEvent("stage_round_refused",
		"A message that goes round was not taken by its stage topic again; it is requeued")
	// start: nothing
	eventStageRounds = logging.InfoEvent("stage_rounds",
		"A stage is longer than its messages can be held; they are published to their stage topic again")
	// once: Restart the process; look what the broker did.
	eventSubscriptionEnded = logging.ErrorEvent("subscription_ended",
		"A subscription ended by itself; its handler and the handler's stages get no more messages")
	// stop: Read the error; a connection may be left.
	eventStageNotClosed = logging.ErrorEvent("stage_not_closed", "The subscriber of a stage topic cannot be closed")
	// once: Attach the channel to the router.
	eventStageUnprotected = logging.ErrorEvent("stage_unprotected",
		"A handler with stages runs without Stages.Middleware, so its messages do not wait in stages: Attach the "+
			"channel to its router, or add the middleware with AddMiddleware of what AddHandler returned")
)
