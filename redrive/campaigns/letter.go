package campaigns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/redrive/internal/engine"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

var errInterrupted = errors.New("the publisher called runtime.Goexit")

// bring publishes a letter if it may be.
func (f *flight) bring(ctx context.Context, p engine.Piece) result {
	config, request, of := &f.all.config, &f.campaign.Request, p.Letter
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
		topic = engine.Entry(config.ReentryTopic, of.Letter, topic, func(err error) {
			logging.ReentryPanicked.Write(config.Logger, err, f.fields(of, topic))
		})
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
	if p.Batch.Keep(of) != nil || ctx.Err() != nil {
		return result{}
	}
	if request.HandleAgain && of.Failure.Reason == classify.ReasonOutput {
		if _, err := hidden.Of(f.all.store).HandleAgain(ctx, *of, f.act()); err != nil {
			return f.keyStays(ctx, p, err)
		}
	}
	_, err = f.publishing().Redrive(ctx, of.Letter, l, topic, request.By, f.campaign.ID)
	if err != nil {
		return f.refusal(ctx, p, err)
	}
	f.target.accepted()
	return result{outcome: redriven}
}

// refusal is what becomes of a letter that the publisher refuses.
func (f *flight) refusal(ctx context.Context, p engine.Piece, err error) result {
	if ctx.Err() != nil { // refused while everything ends: no failure of the letter or the publisher
		return result{}
	}
	own := f.all.config.Classifier.IsTooLarge(err) || destination.IsRefused(err) // it says nothing of the target
	if !own {
		f.refusedBy(p, err)
	}
	if tries := p.Tries + 1; !own && (tries < maxTries || f.target.isDown() != nil) {
		return result{rest: f.config.Poll * time.Duration(tries), tries: tries}
	}
	return result{outcome: failed, why: f.all.config.text(err, maxText)}
}

// keyStays is what becomes of a letter whose handler cannot be let run again, such as by a role that may not delete
// keys. In an outage of the database it is not taken again.
func (f *flight) keyStays(ctx context.Context, p engine.Piece, err error) result {
	if ctx.Err() != nil {
		return result{}
	}
	if tries := p.Tries + 1; tries < maxTries {
		return result{rest: f.config.Poll * time.Duration(tries), tries: tries}
	}
	return result{outcome: failed, why: f.all.config.text(err, maxText)}
}

// closed is what becomes of a sealed letter that does not open: refused, or tried again until the keys are available.
func (f *flight) closed(ctx context.Context, p engine.Piece, topic string, err error) result {
	if ctx.Err() != nil {
		return result{}
	}
	if errors.Is(err, seal.ErrUnavailable) {
		f.refusedBy(p, err)
		return result{rest: f.config.Poll, tries: p.Tries + 1}
	}
	logging.RedriveClosed.Write(f.all.config.Logger, err, f.fields(p.Letter, topic))
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

// publishing is how the campaign offers a letter to the publisher. A turn has been waited for; each further attempt
// waits as long as one lasts.
func (f *flight) publishing() engine.Publishing {
	return engine.Publishing{By: traced.By{Tracer: f.all.config.Tracer, Logger: f.all.config.Logger}, Publisher: f.publisher,
		Attempts: f.config.attempts, Classifier: f.all.config.Classifier, Turn: func(ctx context.Context) error {
			timing.Wait(ctx, time.Duration(f.every.Load()))
			return ctx.Err()
		}}
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

// maxTries is how often a letter that the publisher refuses is taken while others are accepted.
const maxTries = 5

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

// Status implements engine.Result.
func (r result) Status() letters.Status {
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
func (f *flight) refusedBy(p engine.Piece, err error) {
	t := f.target
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused[p.Letter.Seq] = true
	never := p.Tries+1 >= maxTries && !t.accepts
	if (len(t.refused) >= engine.MaxRefusals || never) && t.down == nil {
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
