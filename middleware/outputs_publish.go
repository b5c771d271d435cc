package middleware

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/bounded"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/contain"
	"github.com/watermill-spillway/spillway/internal/wait"
	"github.com/watermill-spillway/spillway/poison"
)

// outputPublisher is a handler's publisher that reports back to the source of what it publishes.
type outputPublisher struct {
	message.Publisher
	outputs *Outputs
	closed  atomic.Bool
}

// Publish returns nil when every message was accepted, or when their source was set aside because one was not.
func (p *outputPublisher) Publish(topic string, messages ...*message.Message) error {
	source := tieOf(messages).take()
	if source == nil {
		p.passing(messages)
		return p.Publisher.Publish(topic, messages...)
	}
	err := contain.Call("publisher", func() error { return p.Publisher.Publish(topic, messages...) })
	if err == nil {
		source.Release()
		return nil
	}
	if err = p.insist(source, topic, messages, err); err != nil {
		source.Restore() // the router nacks it now, and some subscribers send this very message again
	}
	return err
}

// Close closes the handler's publisher. The router does so under running handlers.
func (p *outputPublisher) Close() error {
	p.closed.Store(true)
	return p.Publisher.Close()
}

// insist goes on after the first refusal, one message at a time, so that what was accepted is known. The publisher may
// have accepted some before it refused; they are published again, with the same ids.
func (p *outputPublisher) insist(c *chain.Call, topic string, messages []*message.Message, err error) error {
	config := &p.outputs.config
	waits := config.Backoff.start()
	failure := &classify.Failure{}
	next, tries := 0, 0 // the message that was refused, and how often
	for {
		if c.Aborted() || p.closed.Load() {
			return c.Abort(err)
		}
		verdict := config.Classifier.Classify(err)
		failure.Add(err, verdict, time.Now())
		p.report(c, err)
		tries++
		pause := waits.NextBackOff()
		if tries >= config.Attempts || pause == backoff.Stop || inVain(verdict) || tries > 1 && poison.IsTooLarge(err) {
			return p.setAside(c, failure, topic, messages[next], err)
		}
		if !wait.For(c.WaitContext(), pause) {
			if c.Aborted() {
				return c.Abort(err)
			}
			return p.setAside(c, failure, topic, messages[next], err)
		}
		err = nil
		for ; next < len(messages) && err == nil; next++ {
			msg := messages[next]
			if err = contain.Call("publisher", func() error { return p.Publisher.Publish(topic, msg) }); err == nil {
				tries = 0
				waits.Reset()
			}
		}
		if err == nil {
			c.Release()
			return nil
		}
		next--
	}
}

func inVain(v classify.Verdict) bool {
	return v.Class == classify.ClassPermanent || v.Class == classify.ClassInvalid
}

// setAside places the source in its dead-letter topic: its handler succeeded, so what it was counted with stays.
func (p *outputPublisher) setAside(c *chain.Call, failure *classify.Failure, topic string, refused *message.Message, err error) error {
	err = fmt.Errorf("middleware: output %q cannot be published to %q: %w", bounded.Text(refused.UUID, 200), topic, err)
	failure.Err = err
	failure.Verdict = classify.Verdict{Class: classify.ClassPermanent, Reason: classify.ReasonOutput}
	failure.Attempts = max(c.Attempts, 1) // of the handler, not of the publisher
	original := c.Original()
	original.SetContext(c.WaitContext())
	if placing := p.outputs.config.Queue.Place(original, failure); placing != nil {
		return errors.Join(err, placing)
	}
	c.Release()
	return nil
}

func (p *outputPublisher) report(c *chain.Call, err error) {
	config := &p.outputs.config
	config.Logger.Error("A produced message was refused", err, watermill.LogFields{"handler": message.HandlerNameFromCtx(c.Ctx)})
	if config.OnOutputError != nil {
		contain.Hook(config.Logger, "middleware.OnOutputError", func() { config.OnOutputError(c.Ctx, err) })
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
