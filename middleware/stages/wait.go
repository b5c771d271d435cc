package stages

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
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
	in, err := w.Subscriber.Subscribe(ctx, w.topic)
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
			w.log().Error("The subscriber of a stage topic cannot be closed", err, watermill.LogFields{"handler": w.of.name, "stage_topic": w.topic})
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
func (w *waiter) hold(ctx context.Context, msg *message.Message, out chan<- *message.Message) {
	handed := false
	defer func() {
		if !handed { // no effect on an acked message
			msg.Nack()
		}
	}()
	ctx, cancel := both(ctx, msg.Context())
	defer cancel()
	foreign := w.foreign(msg)
	if foreign && w.of.stages.config.SharedTopics {
		msg.Ack()
		return
	}
	stage := w.stageOf(msg)
	until, again := w.until(msg.Context(), stage)
	if !wait.For(ctx, time.Until(until)) {
		return
	}
	if again {
		w.again(ctx, msg, stage)
		return
	}
	if w.room != nil {
		select {
		case w.room <- struct{}{}:
			defer func() { <-w.room }()
		case <-ctx.Done():
			return
		}
	}
	msg.SetContext(chain.WithReentry(msg.Context(), &chain.Reentry{Handler: w.of.name, As: w.of.name + w.suffix, Stage: stage.Number, Foreign: foreign}))
	w.onReentry(msg, stage)
	select {
	case out <- msg:
		handed = true
	case <-ctx.Done():
		return
	}
	if w.room != nil {
		select {
		case <-msg.Acked():
		case <-msg.Nacked():
		case <-ctx.Done():
		}
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
	if w.delay > 0 && !stage.DueAt.IsZero() {
		event.Late = time.Since(stage.DueAt)
	}
	safecall.Hook(w.log(), "stages.OnReentry", func() { hook(msg.Context(), event) })
}

// stageOf reads the stage that msg waits in from its metadata, and corrects what cannot be true. After a change of the
// configuration, a number that this topic does not serve becomes the nearest one. A message that names no stage has not waited
// yet: it is a dead letter that re-enters, with all stages before it.
func (w *waiter) stageOf(msg *message.Message) poison.RetryStage {
	stage := poison.RetryStageOf(msg)
	number := 0
	_, waited := msg.Metadata[poison.KeyRetryDueAt]
	if _, named := msg.Metadata[poison.KeyRetryStage]; named || waited {
		number = w.nearest(stage.Number)
	}
	if stage.Number != number && stage.Number != 0 {
		w.log().Info("A message waits in a stage that was removed; it goes on in the nearest stage", watermill.LogFields{
			"handler": w.of.name, "stage_topic": w.topic, "stage": stage.Number, "nearest": number,
		})
	}
	stage.Number = number
	if waited && stage.DueAt.IsZero() { // the value is no time: never early
		stage.DueAt = time.Now().Add(w.delay)
	}
	return stage
}

func (w *waiter) nearest(number int) int {
	if len(w.numbers) == 0 || number == 0 && w.delay == 0 {
		return w.of.stages.nearest(number)
	}
	return min(max(number, w.numbers[0]), w.numbers[len(w.numbers)-1])
}

// until returns the time to hold a message until, and whether it is published to its topic again then. No message is held for longer
// than w.holds. So a due time that is garbage, or from a wrong clock, delays its message by that much at most.
func (w *waiter) until(ctx context.Context, stage poison.RetryStage) (until time.Time, again bool) {
	now := time.Now()
	if w.delay == 0 || !stage.DueAt.After(now) {
		return now, false
	}
	hold := w.fits(ctx, now)
	longest := now.Add(hold)
	if stage.HoldUntil.IsZero() || !stage.HoldUntil.Before(stage.DueAt) {
		again = stage.DueAt.After(longest) && hold < w.of.stages.longest(w.delay)
		return earlier(stage.DueAt, longest), again
	}
	again = stage.DueAt.Sub(now)/2 < w.of.stages.config.MaxDelay // halved, since twice the longest MaxDelay overflows
	return earlier(stage.HoldUntil, longest), again
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// minHold keeps messages from going round ever faster as their ack deadline comes near. They are given back when it passes.
const minHold = time.Second

// fits returns how long a message with ctx is held. It is w.holds, or half of the time that is left before an ack deadline, or
// minHold in a transaction.
func (w *waiter) fits(ctx context.Context, now time.Time) time.Duration {
	hold := w.holds
	if hold > minHold && chain.TransactionOf(ctx) != nil {
		hold = minHold
		w.warn("The subscriber of a stage topic holds a transaction open for each waiting message; messages go round every second and come late", hold)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(now)/2 < hold {
		hold = max(deadline.Sub(now)/2, min(minHold, w.holds))
		w.warn("A stage is longer than its subscriber's ack deadline; messages go round, come late, and hold a transaction while they wait", hold)
	}
	return hold
}

// warn logs once that the stage does not suit its subscriber.
func (w *waiter) warn(text string, hold time.Duration) {
	w.warned.Do(func() {
		w.log().Error(text, errors.New("set stages.Config.Store"),
			watermill.LogFields{"handler": w.of.name, "stage_topic": w.topic, "delay": w.delay, "held": hold})
	})
}

// again publishes msg to the end of its topic.
func (w *waiter) again(ctx context.Context, msg *message.Message, stage poison.RetryStage) {
	taken := false
	defer func() { // even if the publisher ends the goroutine
		if taken {
			msg.Ack()
			return
		}
		wait.For(ctx, time.Second) // some subscribers redeliver at once, and without end
		msg.Nack()
	}()
	round := msg.Copy()
	round.SetContext(chain.Returning(context.WithoutCancel(msg.Context())))
	hold := time.Now().Add(w.holds)
	round.Metadata.Set(poison.KeyRetryDueAt, stage.DueAt.UTC().Format(time.RFC3339Nano)) // a value that is no time would be put off each time
	delete(round.Metadata, poison.KeyRetryHoldUntil)
	if hold.Before(stage.DueAt) {
		round.Metadata.Set(poison.KeyRetryHoldUntil, hold.UTC().Format(time.RFC3339Nano))
	}
	err := safecall.Call("publisher", func() error { return w.of.stages.config.Publisher.Publish(w.topic, round) })
	if taken = err == nil; !taken {
		w.log().Error("A message that waits longer than MaxHold was not taken by its stage topic again; it is given back", err,
			watermill.LogFields{"handler": w.of.name, "stage_topic": w.topic})
	}
}
