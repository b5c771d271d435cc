package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// MaxRefusals is how many letters in a row a publisher may refuse before it is believed that it is down.
	MaxRefusals = 3
	// maxShrinks is how many refusals for size are answered with less, and count as no attempt.
	maxShrinks     = 2
	publishBackoff = 50 * time.Millisecond // after the first refusal; it doubles up to a second
	maxShown       = 4 << 10               // bytes of the text of an error that is masked
)

// CheckPublisher returns an error for a publisher with which letters do not come back.
func CheckPublisher(owner string, publisher message.Publisher, topics ...string) error {
	if safecall.IsNil(publisher) {
		return fmt.Errorf("%s: the publisher is nil: give the one of the live topics", owner)
	}
	if _, isStore := decorated.As[*letters.Store](publisher); isStore ||
		decorated.Hides[*letters.Store](publisher) != nil {
		return fmt.Errorf("%s: the publisher is a dead-letter Store, which would store the letters again: give the one of "+
			"the live topics", owner)
	}
	if err := destination.CheckKeeps(publisher, topics...); err != nil {
		return fmt.Errorf("%s: %w", owner, err)
	}
	return nil
}

// Publishing is how letters are offered to a publisher.
type Publishing struct {
	traced.By
	Publisher message.Publisher
	// Attempts is how often a letter is offered. What is refused for its size, as Classifier says, is offered with less.
	Attempts   int
	Classifier *classify.Classifier
	// Turn waits before each attempt but the first, and returns an error if ctx ended. Default: none waits.
	Turn func(ctx context.Context) error
	// Refused is called with each refusal. Default: nothing.
	Refused func(err error)
}

// Redrive publishes a letter as the message that it was. What was refused for its size goes without the history, which
// the message did not have when it fitted. Then it goes with the count of redrives alone, if it goes to where it came
// from: elsewhere, the other keys say whose it is. kept is the letter as it is kept, which may be sealed.
func (p Publishing) Redrive(ctx context.Context, kept, l poison.Letter, topic, by, id string) (trace string, _ error) {
	return p.Publish(ctx, observe.Redrive, kept, l.Original, topic, func(tooLarge int, trace string) *message.Message {
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
		return l.Redriven(by, id, time.Now())
	})
}

// Publish offers what build makes, with the number of refusals for size so far: a message of its own for each attempt,
// because a publisher may change it. The context of what is published is a new one: a pub/sub that hands contexts on
// would otherwise give the consumer one that ends with our work, or that says "one of our own". It says only that the
// metadata can be believed. Publish returns the trace of the last attempt.
func (p Publishing) Publish(ctx context.Context, kind observe.Kind, l poison.Letter, original *message.Message,
	topic string, build func(tooLarge int, trace string) *message.Message) (trace string, err error) {
	waits := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(publishBackoff), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	for attempt, tooLarge := 1, 0; ; attempt++ {
		if err != nil && p.Turn != nil && p.Turn(ctx) != nil {
			return trace, err
		}
		var op observe.Operation
		if p.Tracer != nil {
			op = Operation(kind, l)
			op.Message, op.To, op.Client, op.Number, op.Parent = original, topic, p.Publisher, attempt, p.Trace(ctx)
		}
		err = p.PublishMasked(chain.Returning(context.Background()), &op, Shown,
			func(in context.Context, its string) error {
				trace = its
				msg := build(tooLarge, trace)
				msg.SetContext(in)
				return safecall.Call("publisher", func() error { return p.Publisher.Publish(topic, msg) })
			})
		if err == nil {
			return trace, nil
		}
		err = fmt.Errorf("redrive: publish to %q: %w", boundedtext.Text(topic, 200), err)
		if p.Refused != nil {
			p.Refused(err)
		}
		if p.Classifier.IsTooLarge(err) {
			if tooLarge++; tooLarge <= maxShrinks && ctx.Err() == nil {
				attempt--
				continue // size does not pass with time: no wait
			}
		}
		if attempt >= p.Attempts || !timing.Wait(ctx, waits.NextBackOff()) {
			return trace, err
		}
	}
}

// Operation is what is done with a letter.
func Operation(kind observe.Kind, l poison.Letter) observe.Operation {
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

// Shown returns the text of a refusal without credentials.
func Shown(err error) string { return (*privacy.Redactor)(nil).Text(boundedtext.Error(err, maxShown)) }

// Entry is where a letter enters that may go to topic: where reentry says, or there. panicked is called with the error of
// a reentry that panicked.
func Entry(reentry func(poison.Letter) string, l poison.Letter, topic string, panicked func(error)) string {
	entry := ""
	if err := safecall.Call("ReentryTopic", func() error { entry = reentry(l); return nil }); err != nil {
		panicked(err)
	}
	if entry == "" {
		return topic
	}
	return entry
}
