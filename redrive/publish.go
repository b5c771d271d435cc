package redrive

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
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
		err = r.traced().PublishMasked(chain.Returning(context.Background()), op, shown,
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
		logging.RedriveUnplaced.Write(r.Logger, err, fields(l, topic))
		if r.Classifier.IsTooLarge(err) {
			if tooLarge++; tooLarge <= maxShrinks && ctx.Err() == nil {
				attempt--
				continue // size does not pass with time: no wait
			}
		}
		if attempt >= r.PublishAttempts || !wait.For(ctx, waits.NextBackOff()) {
			return trace, err
		}
	}
}
