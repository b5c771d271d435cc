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

// waiter is the subscriber of a stage: it holds each message until it is due, before the router sees it. So a wait is in
// nobody's transaction, counts nothing, and ends at once.
type waiter struct {
	*sharedSubscriber
	*stageTopic
	room    chan struct{} // a place for each message that is being handled; nil is room for all
	closing chan struct{}
	end     sync.Once
}

func (t *stageTopic) around(sub *sharedSubscriber) *waiter {
	w := &waiter{sharedSubscriber: sub, stageTopic: t, closing: make(chan struct{})}
	if t.concurrency > 0 {
		w.room = make(chan struct{}, t.concurrency)
	}
	return w
}

// String is what the router's context and logs call the subscriber.
func (w *waiter) String() string { return nameOf(w.Subscriber) }

// Subscribe subscribes to the stage's topic, whatever the router calls it: there a stage is subscribed to the topic of its
// handler, whose message it is.
func (w *waiter) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	if s := w.of.stages; s.relay != nil && !s.plugged.Load() {
		return nil, fmt.Errorf("stages: stages of handler %q: there is a Store, and the router has no plugin that moves what is due: "+
			"Attach the channel, or add Stages.Plugin", w.of.name)
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

// Close ends all waits, so that the subscriber gets its messages back, and closes it.
func (w *waiter) Close() error {
	w.end.Do(func() { close(w.closing) })
	return w.sharedSubscriber.Close()
}

// deliver waits with all messages at once that the subscriber delivers at once.
func (w *waiter) deliver(ctx context.Context, in <-chan *message.Message, out chan<- *message.Message) {
	defer close(out)
	defer func() { // before the router takes the handler for stopped
		if err := w.of.stages.closeUnused(w.sharedSubscriber); err != nil {
			w.of.stages.config.Logger.Error("The subscriber of a stage topic cannot be closed", err, watermill.LogFields{"handler": w.of.name, "stage_topic": w.topic})
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

// hold hands msg on when it is due, or gives it back when ctx, or its own context, ends before that.
func (w *waiter) hold(ctx context.Context, msg *message.Message, out chan<- *message.Message) {
	handed := false
	defer func() {
		if !handed { // one that is acked stays so
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
	w.tell(msg, stage)
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

// both ends with either.
func both(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}

// foreign tells whether msg waits for another handler.
func (t *stageTopic) foreign(msg *message.Message) bool {
	if !t.shared {
		return false
	}
	origin := poison.Read(msg).Origin
	return origin.Handler != "" && origin.Handler != t.of.name || origin.Topic != "" && origin.Topic != t.of.topic
}

// stageOf is where msg waits, as far as it can be true. A number that this topic does not serve, after a change of the
// configuration, is that of the nearest stage that there is. Where nothing is told the message has waited in no stage yet:
// a dead letter that enters here has all of them before it.
func (w *waiter) stageOf(msg *message.Message) poison.Stage {
	stage := poison.StageOf(msg)
	number := 0
	_, waited := msg.Metadata[poison.KeyRetryDueAt]
	if _, told := msg.Metadata[poison.KeyRetryStage]; told || waited {
		number = w.nearest(stage.Number)
	}
	if stage.Number != number && stage.Number != 0 {
		w.of.stages.config.Logger.Info("A message waits in a stage that there is no more; it goes on in the nearest", watermill.LogFields{
			"handler": w.of.name, "stage_topic": w.topic, "stage": stage.Number, "nearest": number,
		})
	}
	stage.Number = number
	if waited && stage.DueAt.IsZero() { // and cannot be a time: never early
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

// until is the time to wait for, and whether the message then goes round instead of on. No wait is longer than a message
// is held here: a time that is garbage, or of a clock that is wrong, holds it up for that long at the most.
func (w *waiter) until(ctx context.Context, stage poison.Stage) (until time.Time, again bool) {
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
	again = stage.DueAt.Sub(now)/2 < w.of.stages.config.MaxDelay // and not twice of that: it may be as long as can be
	return earlier(stage.HoldUntil, longest), again
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// minHold keeps messages from going round ever faster where hardly anything is left of their ack deadline. They are given
// back when it passes.
const minHold = time.Second

// fits is how long a message is held that has this context: half of what is left of its ack deadline, where the stage
// outlasts it.
func (w *waiter) fits(ctx context.Context, now time.Time) time.Duration {
	hold := w.holds
	if hold > minHold && chain.TransactionOf(ctx) != nil {
		hold = minHold
		w.warn("The subscriber of a stage topic consumes in a transaction, which waiting messages hold open: they go round every second, and come late", hold)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(now)/2 < hold {
		hold = max(deadline.Sub(now)/2, min(minHold, w.holds))
		w.warn("The subscriber of a stage topic has an ack deadline that the stage outlasts: its messages go round, late, and hold a transaction while they wait", hold)
	}
	return hold
}

// warn says once that the stage is not for its subscriber.
func (w *waiter) warn(text string, hold time.Duration) {
	w.outlasts.Do(func() {
		w.of.stages.config.Logger.Error(text, errors.New("set Config.Store"),
			watermill.LogFields{"handler": w.of.name, "stage_topic": w.topic, "delay": w.delay, "held": hold})
	})
}

// again publishes msg to the end of its topic.
func (w *waiter) again(ctx context.Context, msg *message.Message, stage poison.Stage) {
	taken := false
	defer func() { // whatever the publisher does
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
	round.Metadata.Set(poison.KeyRetryDueAt, stage.DueAt.UTC().Format(time.RFC3339Nano)) // what was no time would be put off each time
	delete(round.Metadata, poison.KeyRetryHoldUntil)
	if hold.Before(stage.DueAt) {
		round.Metadata.Set(poison.KeyRetryHoldUntil, hold.UTC().Format(time.RFC3339Nano))
	}
	config := &w.of.stages.config
	err := safecall.Call("publisher", func() error { return config.Publisher.Publish(w.topic, round) })
	if taken = err == nil; !taken {
		config.Logger.Error("A message that waits longer than it can be held was not taken by its stage again; it is given back", err,
			watermill.LogFields{"handler": w.of.name, "stage_topic": w.topic})
	}
}

func (w *waiter) tell(msg *message.Message, stage poison.Stage) {
	hook := w.of.stages.config.OnReentry
	if hook == nil {
		return
	}
	event := Reentry{ID: msg.UUID, Handler: w.of.name, Topic: w.of.topic, StageTopic: w.topic, Stage: stage.Number}
	if w.delay > 0 && !stage.DueAt.IsZero() {
		event.Late = time.Since(stage.DueAt)
	}
	safecall.Hook(w.of.stages.config.Logger, "stages.OnReentry", func() { hook(msg.Context(), event) })
}
