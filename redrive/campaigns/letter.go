package campaigns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

// maxShrinks is how many refusals for size are answered with less, and count as no attempt.
const maxShrinks = 2

const publishBackoff = 50 * time.Millisecond // after the first refusal; it doubles up to a second

var errInterrupted = errors.New("the publisher called runtime.Goexit")

// one publishes a letter, which has a place in unmarked.
func (f *flight) one(ctx context.Context, p piece) {
	r, returned := result{rest: f.config.Poll, tries: p.tries + 1}, false
	defer func() {
		if !returned { // the goroutine is lost, the letter is not
			f.refusedBy(p, errInterrupted)
			f.cancel()
		}
		f.settler.note(settled{p, r, true})
	}()
	r = f.bring(ctx, p)
	returned = true
}

// bring publishes a letter if it may be.
func (f *flight) bring(ctx context.Context, p piece) result {
	config, request, of := &f.all.config, &f.campaign.Request, p.letter
	if of.Redrive.Count >= config.MaxRedrives {
		return result{outcome: quarantined}
	}
	if f.campaign.Policy != "" && of.Redrive.Count > 0 {
		return result{outcome: refused, why: CameBack}
	}
	topic, why := f.all.target(request, of.Origin.Topic)
	if why != "" {
		logging.RedriveRefused.Write(config.Logger, fmt.Errorf("campaigns: %s: %q", why, logged(topic)), f.fields(of, topic))
		return result{outcome: refused, why: why + " " + logged(topic)}
	}
	if request.FirstStage {
		topic = f.entry(of.Letter, topic)
	}
	l, err := f.all.store.Open(ctx, *of)
	if err != nil {
		return f.closed(ctx, p, topic, err)
	}
	if request.Edit != nil {
		edited, err := request.Edit.edited(ctx, l.Original, config.Edits)
		switch {
		case ctx.Err() != nil: // it says nothing of the letter
			return result{}
		case err != nil:
			return result{outcome: refused, why: "edit: " + config.text(err, maxText-10)}
		}
		l.Original = edited
	}
	if p.batch.lease.Keep(of) != nil || ctx.Err() != nil {
		return result{}
	}
	if request.HandleAgain && of.Failure.Reason == classify.ReasonOutput {
		if _, err := hidden.Of(f.all.store).HandleAgain(ctx, *of, f.act()); err != nil {
			return f.keyStays(ctx, p, err)
		}
	}
	if err := f.publish(ctx, l, topic, p.batch.turns.every); err != nil {
		return f.refusal(ctx, p, err)
	}
	f.target.accepted()
	return result{outcome: redriven}
}

// refusal is what becomes of a letter that the publisher refuses.
func (f *flight) refusal(ctx context.Context, p piece, err error) result {
	if ctx.Err() != nil { // refused while everything ends: no failure of the letter or the publisher
		return result{}
	}
	own := f.all.config.Classifier.IsTooLarge(err) || destination.IsRefused(err) // it says nothing of the target
	if !own {
		f.refusedBy(p, err)
	}
	if tries := p.tries + 1; !own && (tries < maxTries || f.target.isDown() != nil) {
		return result{rest: f.config.Poll * time.Duration(tries), tries: tries}
	}
	return result{outcome: failed, why: f.all.config.text(err, maxText)}
}

// keyStays is what becomes of a letter whose handler cannot be let run again, such as by a role that may not delete
// keys. In an outage of the database it is not taken again.
func (f *flight) keyStays(ctx context.Context, p piece, err error) result {
	if ctx.Err() != nil {
		return result{}
	}
	if tries := p.tries + 1; tries < maxTries {
		return result{rest: f.config.Poll * time.Duration(tries), tries: tries}
	}
	return result{outcome: failed, why: f.all.config.text(err, maxText)}
}

// closed is what becomes of a sealed letter that does not open: refused, or tried again until the keys are available.
func (f *flight) closed(ctx context.Context, p piece, topic string, err error) result {
	if ctx.Err() != nil {
		return result{}
	}
	if errors.Is(err, seal.ErrUnavailable) {
		f.refusedBy(p, err)
		return result{rest: f.config.Poll, tries: p.tries + 1}
	}
	logging.RedriveClosed.Write(f.all.config.Logger, err, f.fields(p.letter, topic))
	return result{outcome: refused, why: whyClosed(err)}
}

// whyClosed is the same text for all letters of a key.
func whyClosed(err error) string {
	var of *envelope.Error
	if errors.As(err, &of) && !errors.Is(err, seal.ErrOtherLetter) { // which says of which letter it is
		err = of
	}
	return boundedtext.Error(err, maxText)
}

// entry is where a letter enters that may go to topic.
func (f *flight) entry(l poison.Letter, topic string) string {
	var entry string
	if err := safecall.Call("campaigns.ReentryTopic", func() error {
		entry = f.all.config.ReentryTopic(l)
		return nil
	}); err != nil {
		logging.ReentryPanicked.Write(f.all.config.Logger, err, logging.Fields{
			logging.Campaign: f.campaign.ID, logging.MessageID: l.Original.UUID, logging.Topic: topic,
		})
	}
	if entry == "" {
		return topic
	}
	return entry
}

// publish offers the letter as the message that it was, a few times. Each attempt gets a message of its own, because a
// publisher may change it. What was refused for its size goes without the history, which the message did not have when
// it fitted, and then with the count of redrives alone, if it goes to where it came from. The context says only that
// the metadata can be believed.
func (f *flight) publish(ctx context.Context, l poison.Letter, topic string, every time.Duration) error {
	waits := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(publishBackoff), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	for attempt, tooLarge := 1, 0; ; attempt++ {
		op := f.operation(ctx, l, topic, attempt)
		err := f.traced().Publish(chain.Returning(context.Background()), &op,
			func(in context.Context, trace string) error {
				l := l
				if trace != "" {
					l.Trace = trace
				}
				msg := l.Redriven(f.campaign.Request.By, f.campaign.ID, time.Now())
				if tooLarge > 1 && topic == l.Origin.Topic {
					least := poison.Letter{Original: l.Original, Redrive: poison.Redrive{Count: l.Redrive.Count}}
					msg = least.Redriven("", "", time.Time{})
				}
				msg.SetContext(in)
				return safecall.Call("publisher", func() error { return f.publisher.Publish(topic, msg) })
			})
		if err == nil {
			return nil
		}
		if f.all.config.Classifier.IsTooLarge(err) {
			if tooLarge++; tooLarge <= maxShrinks && timing.Wait(ctx, every) {
				l.Failure.History = nil
				attempt--
				continue // size does not pass with time
			}
		}
		err = fmt.Errorf("campaigns: publish to %q: %w", logged(topic), err)
		if attempt >= f.config.attempts || !timing.Wait(ctx, max(waits.NextBackOff(), every)) {
			return err
		}
	}
}

// act is what is on record of what the campaign does with a letter.
func (f *flight) act() letters.Act {
	return letters.Act{By: f.campaign.Request.By, Reason: f.campaign.Request.Reason, RedriveID: f.campaign.ID}
}

// fields are what a log line says of a letter: never its payload.
func (f *flight) fields(l *letters.Letter, topic string) logging.Fields {
	return logging.Fields{logging.Campaign: f.campaign.ID, "letter": l.Seq, logging.MessageID: l.Original.UUID,
		logging.Topic: topic, logging.Handler: l.Origin.Handler}
}

// edited returns a changed copy of the message. It ends with ctx, which is the context of the copy.
func (e *Edit) edited(ctx context.Context, msg *message.Message,
	funcs map[string]func(*message.Message) error) (*message.Message, error) {
	c := message.NewMessageWithContext(ctx, msg.UUID, slices.Clone(msg.Payload))
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

const (
	// maxRefusals is how many letters in a row a publisher may refuse before the worker believes that the target is
	// down.
	maxRefusals = 3
	// maxTries is how often a letter that the publisher refuses is taken while others are accepted.
	maxTries = 5
)

// outcome is what became of a letter of a claim.
type outcome string

const (
	redriven    outcome = "redriven"
	quarantined outcome = "quarantined"
	refused     outcome = "refused" // the topic is not allowed, or the edit does not fit
	failed      outcome = "failed"  // the publisher does not take it
	gone        outcome = "gone"    // it does not wait any more
	back        outcome = ""        // it is pending as before
)

// result is what became of a letter. The zero value is a letter that can be taken again as before.
type result struct {
	outcome outcome
	why     string
	rest    time.Duration // before it is taken again
	tries   int           // how often it was refused
}

// status is what the letter is marked with. It is empty if the letter keeps what it has.
func (r result) status() letters.Status {
	switch r.outcome {
	case redriven:
		return letters.StatusRedriven
	case quarantined:
		return letters.StatusQuarantined
	}
	return ""
}

// target is what one run of a worker knows of where the letters go.
type target struct {
	mu      sync.Mutex
	refused map[int64]bool // letters that were refused since one was accepted
	accepts bool           // it accepted a letter before
	down    error          // why the campaign is to pause: the target refuses
}

// refusedBy notes that the target refused a letter. Three different letters in a row say that the target is down, and
// so does one that was refused again and again if the target has accepted none.
func (f *flight) refusedBy(p piece, err error) {
	t := f.target
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused[p.letter.Seq] = true
	never := p.tries+1 >= maxTries && !t.accepts
	if (len(t.refused) >= maxRefusals || never) && t.down == nil {
		t.down = fmt.Errorf("the target refused %d letters in a row: %s", len(t.refused), f.all.config.text(err, 500))
		f.cancel()
	}
}

func (t *target) accepted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accepts = true
	clear(t.refused)
}

// isDown returns why the target is down, or nil.
func (t *target) isDown() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.down
}

func (f *flight) traced() traced.By {
	return traced.By{Tracer: f.all.config.Tracer, Logger: f.all.config.Logger}
}

// operation is one publishing of a letter.
func (f *flight) operation(ctx context.Context, l poison.Letter, topic string, number int) observe.Operation {
	if f.all.config.Tracer == nil {
		return observe.Operation{}
	}
	return observe.Operation{
		Kind: observe.Redrive, Topic: l.Origin.Topic, Handler: l.Origin.Handler, To: topic, Client: f.publisher,
		ID: l.Original.UUID, Message: l.Original, Number: number, Redrives: l.Redrive.Count + 1, Attempts: l.Failure.Attempts,
		Verdict: classify.Verdict{Class: l.Failure.Class, Reason: l.Failure.Reason}, Letter: l, Parent: f.traced().Trace(ctx),
		Earlier: l.Trace,
	}
}
