package stages

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
	"github.com/watermill-spillway/spillway/poison"
)

// stageOf reads the stage that msg waits in from its metadata, and corrects what cannot be true. After a change of the
// configuration, a number that this topic does not serve becomes the nearest one. A message that names no stage has not
// waited yet: it is a dead letter that re-enters, with all stages before it.
func (w *waiter) stageOf(msg *message.Message) deadletter.Stage {
	stage := poison.Inside().StageOf(msg)
	number := 0
	_, waited := msg.Metadata[poison.KeyRetryDueAt]
	if _, named := msg.Metadata[poison.KeyRetryStage]; named || waited {
		number = w.nearest(stage.Number)
	}
	if stage.Number != number && stage.Number != 0 {
		logging.StageRemoved.Write(w.log(), nil, logging.Fields{
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

// allowed returns how long a message with ctx may be held in all: by its subscriber, and by its adapter.
func (w *waiter) allowed(ctx context.Context) time.Duration {
	return min(w.at.maxHold(), hold.MaxHold(ctx, 0))
}

// fits returns how long a message with ctx waits before it goes round. It is stageTopic.holds, or less if its adapter
// allows less. It is half of the time that is left before an ack deadline, or minHold in a transaction.
func (w *waiter) fits(ctx context.Context, now time.Time) time.Duration {
	holds := evenly(w.at.longest, w.allowed(ctx))
	hold := holds
	if hold > minHold && chain.TransactionOf(ctx) != nil {
		hold = minHold
		w.warn(logging.StageInTransaction, hold)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(now)/2 < hold {
		hold = max(deadline.Sub(now)/2, min(minHold, holds))
		w.warn(logging.StageDeadline, hold)
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
		wait.For(ctx, time.Second) // some subscribers redeliver at once, and without end
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
		logging.StageRoundRefused.Write(w.log(), err,
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
