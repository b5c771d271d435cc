package redrive

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
)

const publishBackoff = 50 * time.Millisecond // after the first refusal; it doubles up to a second

// wait waits for the rate, no longer than ctx lasts.
func (r *rules) wait(ctx context.Context) error {
	if r.pacer == nil {
		return ctx.Err()
	}
	return r.pacer.wait(ctx)
}

// redrive publishes the letter as the message that it was. Each attempt gets a message of its own, because a publisher
// may change it. What was refused for its size goes without the history, which the message did not have when it fitted.
// Then it goes with the count of redrives alone, if it goes to where it came from: elsewhere, the other keys say whose
// it is. Hooks are called with the letter as it is kept, which may be sealed. The first attempt's turn has been waited
// for; each further attempt takes a turn of its own.
func (r *rules) redrive(ctx context.Context, sealed, l poison.Letter, topic string) (trace string, _ error) {
	return r.publish(ctx, observe.Redrive, r.publisher, sealed, l.Original, topic, r.wait,
		func(tooLarge int, trace string) *message.Message {
			if trace != "" {
				l.Trace = trace
			}
			if tooLarge > 1 && topic == l.Origin.Topic {
				least := poison.Letter{Original: l.Original, Redrive: poison.Redrive{Count: l.Redrive.Count}}
				return least.Redriven("", "", time.Time{})
			}
			if tooLarge > 0 {
				l.Failure.History = nil
			}
			return l.Redriven(r.By, r.id, time.Now())
		})
}

// maxShrinks is how many refusals for size are answered with less, and count as no attempt.
const maxShrinks = 2

// publish tries as often as is configured, while ctx lasts, and calls turn before each attempt but the first, unless it
// is nil. It calls build with the number of refusals for size so far. The context of what is published is a new one: a
// pub/sub that hands contexts on would otherwise give the consumer one that ends with our work, or that says "one of
// our own". It says only that the metadata can be believed. It returns the trace of the last attempt.
func (r *rules) publish(ctx context.Context, kind observe.Kind, publisher message.Publisher, l poison.Letter,
	original *message.Message, topic string, turn func(context.Context) error,
	build func(tooLarge int, trace string) *message.Message,
) (trace string, _ error) {
	waits := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(publishBackoff), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	var err error
	for attempt, tooLarge := 1, 0; ; attempt++ {
		if err != nil && turn != nil && turn(ctx) != nil {
			return trace, err
		}
		op := r.operation(ctx, kind, publisher, l, topic, attempt)
		op.Message = original
		err = r.traced().PublishMasked(chain.Returning(context.Background()), &op, shown,
			func(in context.Context, its string) error {
				trace = its
				msg := build(tooLarge, trace)
				msg.SetContext(in)
				return safecall.Call("publisher", func() error { return publisher.Publish(topic, msg) })
			})
		if err == nil {
			return trace, nil
		}
		err = fmt.Errorf("redrive: publish to %q: %w", logged(topic), err)
		r.onPublishError(ctx, l, err)
		eventRedriveUnplaced.Write(r.Logger, err, fields(l, topic))
		if r.Classifier.IsTooLarge(err) {
			if tooLarge++; tooLarge <= maxShrinks && ctx.Err() == nil {
				attempt--
				continue // size does not pass with time: no wait
			}
		}
		if attempt >= r.PublishAttempts || !timing.Wait(ctx, waits.NextBackOff()) {
			return trace, err
		}
	}
}

// maxLateness is how late a turn may be and still be made up for by those after it. A longer gap is a time in which
// nothing was asked for, and gives nothing away.
const maxLateness = 100 * time.Millisecond

// pacer gives turns at a steady rate. The turns are due at fixed times, so that a timer or publisher that is a little
// late does not make all later turns late too: of a bucket that holds one token, such a delay takes 24 % at 1,000 turns
// a second.
type pacer struct {
	every time.Duration

	lock sync.Mutex
	due  time.Time // when the next turn is
}

func newPacer(rate float64) *pacer {
	const longest = 100 * 365 * 24 * time.Hour
	return &pacer{every: time.Duration(math.Min(float64(time.Second)/rate, float64(longest)))}
}

// wait waits for a turn, no longer than ctx lasts. It fails at once if the turn comes after the deadline of ctx.
func (p *pacer) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	p.lock.Lock()
	if now.Sub(p.due) > maxLateness {
		p.due = now
	}
	turn := p.due
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(turn) {
		p.lock.Unlock()
		return fmt.Errorf("%w: the rate allows the next letter after it", context.DeadlineExceeded)
	}
	next := turn.Add(p.every)
	p.due = next
	p.lock.Unlock()

	if pause := turn.Sub(now); pause <= 0 || timing.Wait(ctx, pause) {
		return nil
	}
	p.lock.Lock()
	if p.due.Equal(next) { // no later turn was given out: this one is free again
		p.due = turn
	}
	p.lock.Unlock()
	return ctx.Err()
}

func (r *rules) traced() traced.By { return traced.By{Tracer: r.Hooks.Tracer, Logger: r.Logger} }

// operation is one publishing of a letter, or of a message of a dead-letter topic.
func (r *rules) operation(ctx context.Context, kind observe.Kind, client any, l poison.Letter, topic string,
	number int) observe.Operation {
	if r.Hooks.Tracer == nil {
		return observe.Operation{}
	}
	op := operationOn(kind, l)
	op.To, op.Client, op.Number, op.Parent = topic, client, number, r.traced().Trace(ctx)
	return op
}

// settlement calls mark, which ends what trace began, as an operation.
func (r *rules) settlement(l poison.Letter, client any, outcome, trace string, mark func(context.Context) error) error {
	if r.Hooks.Tracer == nil {
		return mark(context.Background())
	}
	op := operationOn(observe.Settle, l)
	op.To, op.Client, op.Outcome, op.Parent = l.DeadLetterTopic, client, outcome, trace
	return r.traced().PublishMasked(context.Background(), &op, shown, func(in context.Context, _ string) error {
		return mark(in)
	})
}

// shown returns the text of a refusal without credentials.
func shown(err error) string { return (*privacy.Redactor)(nil).Text(boundedtext.Error(err, maxShown)) }

// maxShown bounds the text of an error that is masked.
const maxShown = 4 << 10

func operationOn(kind observe.Kind, l poison.Letter) observe.Operation {
	op := observe.Operation{
		Kind: kind, Topic: l.Origin.Topic, Handler: l.Origin.Handler, ID: l.Original.UUID, Message: l.Original,
		Redrives: l.Redrive.Count, Attempts: l.Failure.Attempts,
		Verdict: classify.Verdict{Class: l.Failure.Class, Reason: l.Failure.Reason}, Letter: l, Earlier: l.Trace,
	}
	if kind == observe.Redrive {
		op.Redrives++
	}
	return op
}
