package stages

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/timing/due"
	"github.com/watermill-spillway/spillway/poison"
)

// waiter consumes a stage topic for its handler. It holds each message until the message is due, before the router gets
// it. So a wait is in no handler's transaction, counts as no attempt, and ends at once when the router closes. A
// subscriber that knows package due holds the messages itself.
type waiter struct {
	sub    *sharedSubscriber
	at     *stageTopic
	holds  bool            // sub holds messages until they are due
	room   chan struct{}   // a place for each message that is handled; nil has room for all
	closed context.Context // ends when the router closes
	close  context.CancelFunc
}

func newWaiter(t *stageTopic, sub *sharedSubscriber) *waiter {
	w := &waiter{sub: sub, at: t}
	_, w.holds = sub.Subscriber.(due.Subscriber)
	w.closed, w.close = context.WithCancel(context.Background())
	if t.concurrency > 0 {
		w.room = make(chan struct{}, t.concurrency)
	}
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
	foreign := w.at.foreign(msg)
	if foreign && w.at.of.stages.config.SharedTopics {
		msg.Ack()
		return
	}
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
	if again || !w.enter(ends, msg, arrived) {
		ready = time.Now()
		if !ends.began() {
			w.again(ends, msg, stage)
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

// enter waits for room, and reports whether there is. There is none if the wait ends, or the message was held for as
// long as it may be: those before it wait too, since their handler's downstream is away.
func (w *waiter) enter(ends ending, msg *message.Message, arrived time.Time) bool {
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
		case <-ends.router.Done():
			full.Stop()
			return false
		case <-ends.taking.Done():
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
	event := Reentry{ID: msg.UUID, Handler: w.at.of.name, Topic: w.at.of.topic, StageTopic: w.at.topic,
		Stage: stage.Number}
	if stage.Number > 0 && !stage.DueAt.IsZero() {
		event.Late = max(time.Since(stage.DueAt), 0)
	}
	safecall.Hook(w.log(), "stages.OnReentry", func() { hook(msg.Context(), event) })
}
