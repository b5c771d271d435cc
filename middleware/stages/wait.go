package stages

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/deadletter"
	"github.com/watermill-spillway/spillway/internal/due"
	"github.com/watermill-spillway/spillway/internal/graceful"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/poison"
)

// waiter consumes a stage topic for its handler. It holds each message until the message is due, before the router gets
// it. So a wait is in no handler's transaction, counts as no attempt, and ends at once when the router closes. A
// subscriber that knows package due holds the messages itself.
type waiter struct {
	sub    *sharedSubscriber
	at     *stageTopic
	room   chan struct{}   // a place for each message that is handled; nil has room for all
	closed context.Context // ends when the router closes
	close  context.CancelFunc
}

func newWaiter(t *stageTopic, sub *sharedSubscriber) *waiter {
	w := &waiter{sub: sub, at: t}
	w.closed, w.close = context.WithCancel(context.Background())
	if t.concurrency > 0 {
		w.room = make(chan struct{}, t.concurrency)
	}
	return w
}

func (w *waiter) log() watermill.LoggerAdapter { return w.at.of.stages.config.Logger }

// hold passes msg on when it is due. It nacks msg if ctx, or the message's own context, ends before.
func (w *waiter) hold(router context.Context, msg *message.Message, out chan<- *message.Message) {
	if outage.RedeliveryIn(msg.Context()) == nil { // the subscriber's contexts are its own
		msg.SetContext(outage.WithRedelivery(msg.Context(), w.sub.redelivery))
	}
	session := msg.Context() // the router gives msg another one
	waits, stop := graceful.Waits(session)
	defer stop()
	ctx, cancel := both(router, waits)
	defer cancel()
	foreign := w.at.foreign(msg)
	if foreign && w.at.of.stages.config.SharedTopics {
		msg.Ack()
		return
	}
	handed, arrived, ready := false, due.Arrived(msg.Context()), time.Time{}
	leave, claimed := w.claim(ctx, msg)
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
	again, ok := w.untilDue(ctx, msg, stage, arrived)
	if ready = time.Now(); !ok {
		return
	}
	if again || !w.enter(ctx, msg, arrived) {
		ready = time.Now()
		if ctx.Err() == nil {
			w.again(ctx, msg, stage)
		}
		return
	}
	defer w.exit()
	reentry := &chain.Reentry{Handler: w.at.of.name, As: w.at.of.inRouter(), Topic: w.at.topic, Stage: stage.Number,
		Foreign: foreign, Held: time.Since(arrived)}
	w.at.of.stages.inside.FromStage(msg)
	msg.SetContext(chain.WithReentry(session, reentry))
	w.onReentry(msg, stage)
	select {
	case out <- msg:
		handed = true
	case <-ctx.Done():
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
	if !graceful.Ends(session) {
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
	if w.at.foreign(msg) {
		return arrived
	}
	until, _ := w.until(msg.Context(), w.stageOf(msg), arrived)
	return until
}

// untilDue waits until the message is due, or goes round. It returns false if ctx ends before.
func (w *waiter) untilDue(ctx context.Context, msg *message.Message, stage deadletter.Stage,
	arrived time.Time) (again, ok bool) {
	for {
		shorter := w.sub.redelivery.Changed()
		until, again := w.until(msg.Context(), stage, arrived)
		timer := time.NewTimer(time.Until(until))
		select {
		case <-timer.C:
			return again, ctx.Err() == nil
		case <-shorter:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return false, false
		}
	}
}

// enter waits for room, and reports whether there is. There is none if ctx ends, or the message was held for as long as
// it may be: those before it wait too, since their handler's downstream is away.
func (w *waiter) enter(ctx context.Context, msg *message.Message, arrived time.Time) bool {
	if w.room == nil {
		return true
	}
	for {
		shorter := w.sub.redelivery.Changed()
		full := time.NewTimer(time.Until(arrived.Add(w.allowed(msg.Context()))))
		select {
		case w.room <- struct{}{}:
			full.Stop()
			return true
		case <-full.C:
			return false
		case <-shorter:
			full.Stop()
		case <-ctx.Done():
			full.Stop()
			return false
		}
	}
}

// exit makes room.
func (w *waiter) exit() {
	if w.room != nil {
		<-w.room
	}
}

// both ends with either context.
func both(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}

// foreign reports whether msg waits for another handler.
func (t *stageTopic) foreign(msg *message.Message) bool {
	if !t.shared {
		return false
	}
	origin := poison.Read(msg).Origin
	return origin.Handler != "" && origin.Handler != t.of.name || origin.Topic != "" && origin.Topic != t.of.topic
}

func (w *waiter) onReentry(msg *message.Message, stage deadletter.Stage) {
	hook := w.at.of.stages.config.Hooks.OnReentry
	if hook == nil {
		return
	}
	event := Reentry{ID: msg.UUID, Handler: w.at.of.name, Topic: w.at.of.topic, StageTopic: w.at.topic, Stage: stage.Number}
	if stage.Number > 0 && !stage.DueAt.IsZero() {
		event.Late = max(time.Since(stage.DueAt), 0)
	}
	safecall.Hook(w.log(), "stages.OnReentry", func() { hook(msg.Context(), event) })
}
