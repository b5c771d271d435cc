package middleware

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// outputPublisher is a handler's publisher that reports back to the source of what it publishes.
type outputPublisher struct {
	message.Publisher
	outputs *Outputs
	guard   *outage.Guard
	closed  atomic.Bool
}

// Publish returns nil when every message was accepted, or when their source was set aside because one was not.
func (p *outputPublisher) Publish(topic string, messages ...*message.Message) error {
	source := tieOf(messages).take()
	if source == nil {
		p.passing(messages)
		return p.Publisher.Publish(topic, messages...)
	}
	returned := false
	defer func() {
		if !returned { // the publisher called runtime.Goexit: nobody returns to the router, which would nack
			source.Msg.Nack()
		}
	}()
	outputs := make([]*chain.Call, 0, 8)
	copied := 0
	for _, msg := range messages { // decorators further in may change what they publish: each try gets it as it was made
		if copied += len(msg.Payload); copied > maxCopied {
			outputs = append(outputs, chain.KeepShared(msg))
		} else {
			outputs = append(outputs, chain.Keep(msg))
		}
	}
	// The guard calls this more than once during an outage: after the first time the messages are published as they were made.
	var refusal error
	err := p.during(source, func() error {
		if refusal == nil {
			refusal = p.Publisher.Publish(topic, messages...)
			return refusal
		}
		if anySpoilt(outputs) {
			return unseen{refusal}
		}
		return p.Publisher.Publish(topic, originals(outputs)...)
	})
	if err != nil && refusal != nil && !chain.GaveBack(err) && anySpoilt(outputs) {
		err = p.spoilt(source, topic, len(outputs), refusal)
	} else if err != nil && !chain.GaveBack(err) {
		err = p.insist(source, topic, outputs, err)
	} else if err == nil {
		source.Published()
	}
	for _, output := range outputs {
		output.Release()
	}
	returned = true
	if err != nil && !source.Nacked() { // who nacked it gave it away
		source.Restore() // the router nacks it now, and some subscribers send this very message again
	}
	source.Release()
	return err
}

// Close closes the handler's publisher. The router does so under running handlers.
func (p *outputPublisher) Close() error {
	p.closed.Store(true)
	return p.Publisher.Close()
}

// maxCopied is how many bytes of payloads are copied for one source. The others are shared with the publisher.
const maxCopied = 1 << 20

// spoilt is for outputs whose payloads were shared with a publisher that wrote into them before it refused them. They cannot be
// published again as they were made. The source comes again and makes them anew, unless that would not help.
func (p *outputPublisher) spoilt(c *chain.Call, topic string, n int, err error) error {
	err = fmt.Errorf("a publisher decorator wrote into the payload of an output, which cannot be published again; assign a new payload "+
		"instead: %w", err)
	if c.Nacked() {
		return err
	}
	if c.Aborted() || p.closed.Load() && !c.Acked() {
		return c.Abort(err)
	}
	p.report(c, err)
	verdict := p.outputs.config.Classifier.Classify(err)
	if verdict.Class == classify.ClassTransient && !c.Acked() {
		return err
	}
	failure := &classify.Failure{}
	failure.Add(err, verdict, time.Now())
	return p.setAside(c, failure, topic, fmt.Sprintf("one of %d outputs", n), err)
}

// reserve is the time kept free before the source's deadline, to set it aside in. It is Retry's default.
const reserve = time.Second

// maxOutputWait bounds a publisher's retry-after while the source is held. It is Retry's default.
const maxOutputWait = 30 * time.Second

// insist goes on after the first refusal, one message at a time, so that what was accepted is known. The publisher may
// have accepted some before it refused; they are published again, with the same ids.
func (p *outputPublisher) insist(c *chain.Call, topic string, outputs []*chain.Call, err error) error {
	config := &p.outputs.config
	waits := config.Backoff.start()
	failure := &classify.Failure{}
	next, tries := 0, 0        // the message that was refused, and how often
	alone := len(outputs) == 1 // in company nobody knows which it was
	for {
		if c.Nacked() { // on its way back already: setting it aside too would make two of it
			return err
		}
		if c.Aborted() || p.closed.Load() && !c.Acked() { // who is acked cannot come again, whoever went away
			return c.Abort(err)
		}
		verdict := config.Classifier.Classify(err)
		failure.Add(err, verdict, time.Now())
		p.report(c, err)
		tries++
		pause := waits.NextBackOff()
		if tries >= config.Attempts || pause == backoff.Stop || alone && p.inVain(verdict, err, tries) {
			return p.setAside(c, failure, topic, refused(outputs, next, alone), err)
		}
		pause = max(pause, min(verdict.RetryAfter, maxOutputWait))
		ctx := c.WaitContext()
		if outlasts(ctx, pause, reserve) || !wait.For(ctx, pause) {
			if c.Aborted() {
				return c.Abort(err)
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
		if chain.GaveBack(err) {
			return err
		}
		next--
	}
}

// during publishes, and holds the source while the broker is away. A publisher that was closed under its handler, as the
// router does, is not away: insist settles that.
func (p *outputPublisher) during(c *chain.Call, publish func() error) error {
	return p.guard.Do(c.WaitContext(), c, func() error {
		err := safecall.Call("publisher", publish)
		if err != nil && p.closed.Load() {
			return unseen{err}
		}
		return err
	})
}

// unseen hides from the guard an error that no wait will change.
type unseen struct{ error }

// anySpoilt reports whether a publisher wrote into the payload of an output that was shared with it.
func anySpoilt(outputs []*chain.Call) bool {
	return slices.ContainsFunc(outputs, func(output *chain.Call) bool { return !output.Intact() })
}

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

// inVain reports whether a message that was refused alone will be refused again. Size gets one more try, because a client
// may have sent the message in one batch with one that was too large.
func (p *outputPublisher) inVain(v classify.Verdict, err error, tries int) bool {
	if _, panicked := classify.AsPanic(err); panicked { // of the publisher: that may pass
		return false
	}
	return v.Class == classify.ClassPermanent || v.Class == classify.ClassInvalid || tries > 1 && p.outputs.inside.IsTooLarge(err)
}

// setAside places the source in its dead-letter topic: its handler succeeded, so what it was counted with stays.
func (p *outputPublisher) setAside(c *chain.Call, failure *classify.Failure, topic, refused string, err error) error {
	err = fmt.Errorf("middleware: %s cannot be published to %q: %w", refused, topic, err)
	failure.Err = err
	failure.Verdict = classify.Verdict{Class: classify.ClassPermanent, Reason: classify.ReasonOutput}
	failure.Attempts = max(c.Attempts, 1) // of the handler, not of the publisher
	original := c.Original()
	original.SetContext(c.WaitContext())
	if placing := p.outputs.queue.Place(original, failure); placing != nil {
		return errors.Join(err, placing)
	}
	return nil
}

func (p *outputPublisher) report(c *chain.Call, err error) {
	config := &p.outputs.config
	config.Logger.Error("A produced message was refused", err, watermill.LogFields{"handler": message.HandlerNameFromCtx(c.Ctx)})
	if config.OnOutputError != nil {
		safecall.Hook(config.Logger, "middleware.OnOutputError", func() { config.OnOutputError(c.Ctx, err) })
	}
}

// passing logs once that there are messages without a tie: their handler runs without the middleware, or another
// middleware outside of it made them.
func (p *outputPublisher) passing(messages []*message.Message) {
	if len(messages) == 0 || chain.IsOwn(messages[0].Context()) {
		return
	}
	p.outputs.untied.Do(func() {
		p.outputs.config.Logger.Info("Produced messages without a tie to their source are published unprotected", watermill.LogFields{
			"handler": message.HandlerNameFromCtx(messages[0].Context()),
		})
	})
}
