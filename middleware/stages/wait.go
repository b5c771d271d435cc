package stages

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/poison"
)

// waiter is the subscriber of a stage. It holds each message until the message is due, before the router gets it. So a wait is in no
// handler's transaction, counts as no attempt, and ends at once when the router closes.
type waiter struct {
	*sharedSubscriber
	*stageTopic
	room    chan struct{} // a place for each message that is handled; nil has room for all
	closing chan struct{}
	end     sync.Once
}

func newWaiter(t *stageTopic, sub *sharedSubscriber) *waiter {
	w := &waiter{sharedSubscriber: sub, stageTopic: t, closing: make(chan struct{})}
	if t.concurrency > 0 {
		w.room = make(chan struct{}, t.concurrency)
	}
	return w
}

// String is the subscriber's name in the router's contexts and logs.
func (w *waiter) String() string { return nameOf(w.Subscriber) }

// Subscribe subscribes to the stage topic. The router passes the handler's live topic, which the messages' contexts then have.
func (w *waiter) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	if s := w.of.stages; s.relay != nil && !s.plugged.Load() {
		return nil, fmt.Errorf("stages: handler %q: there is a Store, and no plugin that moves due messages: Attach the channel, or add Stages.Plugin to the router", w.of.name)
	}
	if err := w.initialize(); err != nil {
		return nil, err
	}
	in, err := w.Subscriber.Subscribe(outage.WithRedelivery(ctx, w.sharedSubscriber.redelivery), w.topic)
	if err != nil {
		return nil, err
	}
	w.subscribed.open()
	out := make(chan *message.Message)
	go w.deliver(ctx, in, out)
	return out, nil
}

// Close ends all waits, so that the subscriber gets its messages back, and closes the subscriber.
func (w *waiter) Close() error {
	w.end.Do(func() { close(w.closing) })
	return w.sharedSubscriber.Close()
}

// deliver holds all messages at the same time that the subscriber delivers at the same time.
func (w *waiter) deliver(ctx context.Context, in <-chan *message.Message, out chan<- *message.Message) {
	defer close(out)
	defer func() { // before the router takes the handler for stopped
		if err := w.of.stages.closeUnused(w.sharedSubscriber); err != nil {
			logging.StageNotClosed.Write(w.log(), err, logging.Fields{logging.Handler: w.of.name, logging.StageTopic: w.topic})
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		select {
		case <-w.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	for msg := range in {
		waiting.Go(func() { w.hold(ctx, msg, out) })
	}
	cancel()
}

func (w *waiter) log() watermill.LoggerAdapter { return w.of.stages.config.Logger }

// hold passes msg on when it is due. It nacks msg if ctx, or the message's own context, ends before.
func (w *waiter) hold(router context.Context, msg *message.Message, out chan<- *message.Message) {
	if outage.RedeliveryIn(msg.Context()) == nil { // the subscriber's contexts are its own
		msg.SetContext(outage.WithRedelivery(msg.Context(), w.sharedSubscriber.redelivery))
	}
	session := msg.Context() // the router gives msg another one
	ctx, cancel := both(router, session)
	defer cancel()
	foreign := w.foreign(msg)
	if foreign && w.of.stages.config.SharedTopics {
		msg.Ack()
		return
	}
	handed, arrived, due := false, time.Now(), time.Time{}
	leave, claimed := w.claim(ctx, msg)
	defer func() {
		if !handed { // no effect on an acked message
			msg.Nack()
		}
		leave(outcomeOf(msg, session, router), due.Sub(arrived))
	}()
	if !claimed {
		return
	}
	stage := w.stageOf(msg)
	again, ok := w.untilDue(ctx, msg, stage, arrived)
	if due = time.Now(); !ok {
		return
	}
	if again || !w.enter(ctx, msg, arrived) {
		due = time.Now()
		if ctx.Err() == nil {
			w.again(ctx, msg, stage)
		}
		return
	}
	defer w.exit()
	reentry := &chain.Reentry{Handler: w.of.name, As: w.of.name + w.suffix, Stage: stage.Number, Foreign: foreign, Held: time.Since(arrived)}
	w.of.stages.inside.FromStage(msg)
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
	}
}

// untilDue waits until the message is due, or goes round. It returns false if ctx ends before.
func (w *waiter) untilDue(ctx context.Context, msg *message.Message, stage poison.RetryStage, arrived time.Time) (again, ok bool) {
	for {
		shorter := w.sharedSubscriber.redelivery.Changed()
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

// enter waits for room, and reports whether there is. There is none if ctx ends, or the message was held for as long as it may be: those
// before it wait too, since their handler's downstream is away.
func (w *waiter) enter(ctx context.Context, msg *message.Message, arrived time.Time) bool {
	if w.room == nil {
		return true
	}
	for {
		shorter := w.sharedSubscriber.redelivery.Changed()
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

func (w *waiter) onReentry(msg *message.Message, stage poison.RetryStage) {
	hook := w.of.stages.config.OnReentry
	if hook == nil {
		return
	}
	event := Reentry{ID: msg.UUID, Handler: w.of.name, Topic: w.of.topic, StageTopic: w.topic, Stage: stage.Number}
	if stage.Number > 0 && !stage.DueAt.IsZero() {
		event.Late = max(time.Since(stage.DueAt), 0)
	}
	safecall.Hook(w.log(), "stages.OnReentry", func() { hook(msg.Context(), event) })
}
