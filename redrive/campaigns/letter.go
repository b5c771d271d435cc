package campaigns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// maxShrinks is how many refusals for size are answered with less, and count as no attempt.
const maxShrinks = 2

const publishBackoff = 50 * time.Millisecond // after the first refusal; it doubles up to a second

var errInterrupted = errors.New("the publisher called runtime.Goexit")

// one settles the letter at a place of the claim.
func (b *batch) one(ctx context.Context, i int, t letters.Taken) {
	r := b.claim.rows[i]
	returned := false
	defer func() {
		if !returned { // the goroutine is lost, the letter is not
			b.refusedBy(r, errInterrupted)
			b.release(t)
			b.note(result{row: r, rest: b.config.Poll, tries: r.tries + 1})
			b.cancel()
		}
	}()
	result, release := b.settleOne(ctx, r, t)
	if release {
		b.release(t)
	}
	b.note(result)
	returned = true
}

func (b *batch) settleOne(ctx context.Context, r row, t letters.Taken) (_ result, release bool) {
	config, request := &b.Campaigns.config, &b.campaign.Request
	if t.Redrive.Count >= config.MaxRedrives {
		return b.mark(r, t, letters.StatusQuarantined, quarantined)
	}
	topic, why := b.target(request, t.Origin.Topic)
	if why != "" {
		config.Logger.Error("A letter is not redriven", fmt.Errorf("campaigns: %s: %q", why, logged(topic)), b.fields(t, topic))
		return result{row: r, outcome: refused, why: why + " " + logged(topic)}, true
	}
	if request.FirstStage {
		topic = b.entry(t.Letter.Letter, topic)
	}
	l := t.Letter.Letter
	if request.Edit != nil {
		edited, err := request.Edit.edited(l.Original, config.Edits)
		if err != nil {
			return result{row: r, outcome: refused, why: "edit: " + boundedtext.Error(err, maxText-10)}, true
		}
		l.Original = edited
	}
	if !b.keep(t) || ctx.Err() != nil {
		return result{row: r}, true
	}
	if err := b.publish(ctx, l, topic); err != nil {
		return b.refusal(ctx, r, err), true
	}
	b.accepted()
	return b.mark(r, t, letters.StatusRedriven, redriven)
}

// refusal is what becomes of a letter that the publisher refuses.
func (b *batch) refusal(ctx context.Context, r row, err error) result {
	if ctx.Err() != nil { // refused while everything ends: no failure of the letter or the publisher
		return result{row: r, tries: r.tries}
	}
	own := b.Campaigns.config.Classifier.IsTooLarge(err) || poison.IsRefused(err) // it says nothing of the target
	if !own {
		b.refusedBy(r, err)
	}
	if tries := r.tries + 1; !own && (tries < maxTries || b.isDown()) {
		return result{row: r, rest: b.config.Poll * time.Duration(tries), tries: tries}
	}
	return result{row: r, outcome: failed, why: boundedtext.Error(err, maxText)}
}

// entry is where a letter enters that may go to topic.
func (b *batch) entry(l poison.Letter, topic string) string {
	var entry string
	if err := safecall.Call("campaigns.ReentryTopic", func() error { entry = b.Campaigns.config.ReentryTopic(l); return nil }); err != nil {
		b.Campaigns.config.Logger.Error("ReentryTopic panicked; the letter goes to its origin topic", err, map[string]any{"topic": logged(topic)})
	}
	if entry == "" {
		return topic
	}
	return entry
}

// publish offers the letter as the message that it was, a few times. Each attempt gets a message of its own, because a
// publisher may change it. What was refused for its size goes without the history, which the message did not have when it
// fitted, and then with the count of redrives alone, if it goes to where it came from. The context says only that the metadata can be
// believed.
func (b *batch) publish(ctx context.Context, l poison.Letter, topic string) error {
	waits := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(publishBackoff), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	for attempt, tooLarge := 1, 0; ; attempt++ {
		msg := l.Redriven(b.campaign.Request.By, b.campaign.ID, time.Now())
		if tooLarge > 1 && topic == l.Origin.Topic {
			msg = l.RedrivenLeast()
		}
		msg.SetContext(chain.Returning(context.Background()))
		err := safecall.Call("publisher", func() error { return b.publisher.Publish(topic, msg) })
		if err == nil {
			return nil
		}
		if b.Campaigns.config.Classifier.IsTooLarge(err) {
			if tooLarge++; tooLarge <= maxShrinks && wait.For(ctx, b.claim.every) {
				l.Failure.History = nil
				attempt--
				continue // size does not pass with time
			}
		}
		err = fmt.Errorf("campaigns: publish to %q: %w", logged(topic), err)
		if attempt >= b.config.PublishAttempts || !wait.For(ctx, max(waits.NextBackOff(), b.claim.every)) {
			return err
		}
	}
}

// mark writes down what became of a letter, with the lease that proves it. It tries for as long as it takes, or until the lease
// is lost: a worker that went on without would publish the letter again. The other writers of this worker join it.
func (b *batch) mark(r row, t letters.Taken, status letters.Status, o outcome) (result, bool) {
	act := letters.Act{By: b.campaign.Request.By, Reason: b.campaign.Request.Reason, RedriveID: b.campaign.ID}
	if status == letters.StatusQuarantined {
		act.Reason = classify.ReasonMaxRedrives
	}
	pause := firstPause
	for {
		marked, err := b.marker.mark(t, func(all []letters.Taken) ([]letters.Taken, error) {
			ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
			defer cancel()
			return b.store.MarkEach(ctx, status, act, all...)
		}, status)
		switch {
		case err == nil && (marked || o == redriven): // published it is, marked or not
			return result{row: r, outcome: o, edited: o == redriven && b.campaign.Request.Edit != nil}, false
		case err == nil:
			return result{row: r}, false // another has it
		}
		b.Campaigns.config.Logger.Error("A letter was not marked; the worker tries again", err, b.fields(t, ""))
		time.Sleep(pause) // not until ctx ends: what is published must be marked
		if pause = min(2*pause, maxPause); b.isLost(t) || time.Since(b.leasedUntil()) > maxWrite {
			return result{row: r}, false // the next one to take it publishes it again, if it was not marked after all
		}
	}
}

// fields are what a log line says of a letter: never its payload, and no text of unknown length.
func (b *batch) fields(t letters.Taken, topic string) map[string]any {
	return map[string]any{"campaign": b.campaign.ID, "letter": t.Seq, "message_uuid": logged(t.Original.UUID), "topic": logged(topic)}
}

// edited returns a changed copy of the message.
func (e *Edit) edited(msg *message.Message, funcs map[string]func(*message.Message) error) (*message.Message, error) {
	c := message.NewMessage(msg.UUID, slices.Clone(msg.Payload))
	for key, value := range msg.Metadata {
		c.Metadata[key] = value
	}
	if err := e.apply(c, funcs); err != nil {
		return nil, err
	}
	if c.UUID != msg.UUID {
		return nil, errors.New("the edit changes the id of the message: only payload and metadata can be edited")
	}
	return c, nil
}
