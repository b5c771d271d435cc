package outputs

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/middleware/internal/intervals"
)

// outputPublisher is a handler's publisher that settles the source of the messages that it cannot publish.
type outputPublisher struct {
	message.Publisher
	outputs *Outputs
	broker  *outage.Dependency
	closed  atomic.Bool
}

// Publish returns nil if every message was accepted, or if their source was dead-lettered because one was not.
func (p *outputPublisher) Publish(topic string, messages ...*message.Message) error {
	source := tieOf(messages).take()
	if source == nil {
		p.passing(messages)
		return p.Publisher.Publish(topic, messages...)
	}
	returned := false
	defer func() {
		if !returned { // the publisher called runtime.Goexit, and the router never nacks
			source.Msg.Nack()
		}
	}()
	outputs := make([]*chain.Call, 0, 8)
	for _, msg := range messages { // decorators may change what they publish: each try gets the message as it was made
		outputs = append(outputs, chain.Keep(msg))
	}
	// During an outage the dependency calls this again, and then publishes copies of the messages as they were made.
	tries := 0
	err := p.during(source, func() error {
		if tries++; tries > 1 {
			messages = originals(outputs)
		}
		return p.Publisher.Publish(topic, messages...)
	})
	if err != nil && !chain.IsAborted(err) {
		err = p.insist(source, topic, outputs, err)
	} else if err == nil {
		source.Published()
	}
	for _, output := range outputs {
		output.Release()
	}
	returned = true
	if err != nil && !source.Nacked() { // a nacked message may be on its way again
		source.Restore() // the router nacks it now, and some subscribers send this very message again
	}
	source.Release()
	return err
}

// Close closes the handler's publisher. The router calls it while handlers run.
func (p *outputPublisher) Close() error {
	p.closed.Store(true)
	return p.Publisher.Close()
}

// insist goes on after the first refusal, one message at a time, so that it knows which was accepted. The publisher may
// have accepted some before the refusal. They are published again, with the same ids.
func (p *outputPublisher) insist(c *chain.Call, topic string, outputs []*chain.Call, err error) error {
	config := &p.outputs.config
	waits := backoffOf(config).Start()
	failure := &classify.Failure{}
	next, tries := 0, 0        // the message that was refused, and how often
	alone := len(outputs) == 1 // else it is unknown which one was refused
	for {
		if c.Nacked() { // it comes again: a dead letter too would make two of it
			return err
		}
		if c.Gone() || p.closed.Load() && !c.Acked() { // an acked message cannot come again
			return chain.Aborted(err)
		}
		verdict := config.Classifier.Classify(err)
		attempts.Add(failure, err, verdict, time.Now())
		p.report(c, err)
		tries++
		pause := waits.NextBackOff()
		if tries >= config.Attempts || pause == backoff.Stop || alone && p.inVain(verdict, err, tries) {
			return p.setAside(c, failure, topic, refused(outputs, next, alone), err)
		}
		pause = max(pause, min(verdict.RetryAfter, intervals.MaxRetryAfter))
		ctx := c.PlaceContext()
		if intervals.Outlasts(ctx, pause) || !timing.Wait(ctx, pause) {
			if c.Gone() {
				return chain.Aborted(err)
			}
			return p.setAside(c, failure, topic, refused(outputs, next, alone), err)
		}
		alone, err = true, nil
		for ; next < len(outputs) && err == nil; next++ {
			err = p.during(c, func() error { return p.Publisher.Publish(topic, outputs[next].Original()) })
			if err == nil {
				tries = 0
				waits.Reset()
			}
		}
		if err == nil {
			c.Published()
			return nil
		}
		if chain.IsAborted(err) {
			return err
		}
		next--
	}
}

// during publishes, and holds the source while the broker is unavailable. A publisher that the router closed under its
// handler is not unavailable: insist settles that.
func (p *outputPublisher) during(c *chain.Call, publish func() error) error {
	return p.broker.Do(c.PlaceContext(), c, func() error {
		err := safecall.Call("publisher", publish)
		if err != nil && p.closed.Load() {
			return unseen{err}
		}
		return err
	})
}

// unseen hides an error from outage.Dependency that no wait will change.
type unseen struct{ error }

func originals(outputs []*chain.Call) []*message.Message {
	messages := make([]*message.Message, len(outputs))
	for i, output := range outputs {
		messages[i] = output.Original()
	}
	return messages
}

func refused(outputs []*chain.Call, next int, alone bool) string {
	if !alone {
		return fmt.Sprintf("one of %d outputs", len(outputs))
	}
	return fmt.Sprintf("output %q", boundedtext.Text(outputs[next].Original().UUID, 200))
}

// inVain reports whether a message that was refused alone will be refused again. A message that is too large gets one
// more try: the client may have sent it in one batch with another that was too large.
func (p *outputPublisher) inVain(v classify.Verdict, err error, tries int) bool {
	if _, panicked := errs.Find[*classify.PanicError](err); panicked { // the publisher's panic may pass
		return false
	}
	if v.TooLarge {
		return tries > 1
	}
	return v.Class == classify.ClassPermanent || v.Class == classify.ClassInvalid ||
		tries > 1 && hidden.Of(p.outputs.queue).Classifier().IsTooLarge(err)
}

// setAside dead-letters the source. Its handler succeeded, so its number of attempts stays.
func (p *outputPublisher) setAside(c *chain.Call, failure *classify.Failure, topic, refused string, err error) error {
	err = fmt.Errorf("outputs: %s cannot be published to %q: %w", refused, topic, err)
	failure.Err = err
	failure.Verdict = classify.Verdict{Class: classify.ClassPermanent, Reason: classify.ReasonOutput}
	failure.Attempts = max(c.Attempts, 1) // of the handler, not of the publisher
	original := c.Original()
	original.SetContext(chain.WithTrace(c.PlaceContext(), c.Trace))
	if placing := p.outputs.queue.Place(original, failure); placing != nil {
		return errors.Join(err, placing)
	}
	return nil
}

func (p *outputPublisher) report(c *chain.Call, err error) {
	config := &p.outputs.config
	eventOutputRefused.Write(config.Logger, err, logging.Fields{
		logging.Topic: message.SubscribeTopicFromCtx(c.Ctx), logging.Handler: message.HandlerNameFromCtx(c.Ctx),
	})
	if config.OnOutputError != nil {
		safecall.Hook(config.Logger, "outputs.OnOutputError", func() {
			config.OnOutputError(c.Ctx, hidden.Of(p.outputs.queue).Error(err))
		})
	}
}

// passing logs once if messages have no tie: their handler runs without the middleware, or a middleware further out
// made them.
func (p *outputPublisher) passing(messages []*message.Message) {
	if len(messages) == 0 || chain.IsOwn(messages[0].Context()) {
		return
	}
	p.outputs.untied.Do(func() {
		eventOutputsUnprotected.Write(p.outputs.config.Logger, nil, logging.Fields{
			logging.Handler: message.HandlerNameFromCtx(messages[0].Context()),
		})
	})
}

// A message fails.
var (
	// each: Look why; after bounded tries the source is dead-lettered.
	eventOutputRefused = logging.ErrorEvent("output_refused", "A produced message was refused")
	// once: Attach the channel before other decorators.
	eventOutputsUnprotected = logging.InfoEvent("outputs_unprotected",
		"Messages of a handler without Outputs.Middleware are published unprotected")
)
