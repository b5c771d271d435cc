// Package outputs dead-letters a message whose outputs cannot be published, so that the messages behind it go on.
//
//	outputs, err := outputs.New(queue, outputs.Config{})
//	router.AddMiddleware(outputs.Middleware, queue.Middleware)
//	router.AddPublisherDecorators(outputs.Decorate) // before any other decorator
//
// Outputs of a handler that failed are not published. If an output cannot be published, its source is dead-lettered
// after bounded attempts, with reason output_undeliverable, and the handler does not run again for it. Outputs that
// were refused together are published again one by one, with the same ids. So a source that is dead-lettered for one
// output may have had others published. Without this package the router nacks the source, without end.
package outputs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/internal/intervals"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// Config configures Outputs. The zero value is useful.
type Config struct {
	// Attempts is how often an output is published at most. Default: 5.
	//
	//   - A permanent or invalid error ends the attempts at once. So does a deadline of the source within a second after
	//     the next wait.
	//   - Outputs that were refused together are then published one by one, and each counts for itself.
	//   - An attempt that fails because the broker is unavailable does not count. Neither does one that the broker nacks,
	//   or does
	//     not confirm in time. If it confirms nothing for five minutes, the attempts of one source in each further five
	//     minutes count.
	Attempts int
	// MaxHold is how long a source is held at most while the broker of its outputs is unavailable. Then the source is
	// given back, uncounted, and its handler runs again. It is never held for longer than its adapter allows, or than half
	// of a known redelivery time of its broker: see stages.Config.Subscriber. Default: that time (with wmkafka's
	// Subscriber 24 hours, with wmamqp's 15 minutes), or 20 s if nothing is known.
	MaxHold time.Duration
	// Backoff says how long to wait between attempts, while the source is held. A retry-after is honoured up to 30 s.
	Backoff middleware.Backoff
	// OnOutputError is called after each refused publish. A panic in it is logged.
	OnOutputError func(context.Context, error)
	// Shared: Classifier judges the publisher's errors. Logger receives an Error line per refused publish, and one Info
	// line if outputs are not protected.
	observe.Shared
}

// link makes the type that embeds it a part of chains.
type link = chain.Link

// backoffOf returns the waits of a Config.
func backoffOf(c *Config) *intervals.Backoff { return (*intervals.Backoff)(&c.Backoff) }

// Outputs protects the messages that a handler produces. The router publishes them after all middlewares have returned.
// If the publisher refuses one, the router nacks the source, which is handled again without end.
//
// Outputs ties each produced message to its source. Its decorator around the handler's publisher tries again, and at
// last dead-letters the source with reason output_undeliverable, so that the messages behind it go on. While the broker
// of the outputs is unavailable, the source is held, and requeued at last. Outputs also removes metadata about the
// source's failures and redrives that a handler copied to its outputs.
type Outputs struct {
	link
	queue  *poison.Queue
	config Config
	untied sync.Once
}

// New returns an Outputs that dead-letters sources with queue, or an error that names the field of config that
// is wrong.
func New(queue *poison.Queue, config Config) (*Outputs, error) {
	if config.Attempts == 0 {
		config.Attempts = 5
	}
	backoffOf(&config).SetDefaults()
	config.Logger = logging.Wrap(config.Logger, nil)
	if queue == nil {
		return nil, errors.New("outputs: New: the queue is nil: give the poison.Queue of the handlers")
	}
	if config.Attempts < 1 {
		return nil, fmt.Errorf("outputs: Config.Attempts is %d: it must be at least 1", config.Attempts)
	}
	if config.MaxHold < 0 {
		return nil, fmt.Errorf("outputs: Config.MaxHold is %s: it must not be negative", config.MaxHold)
	}
	if err := backoffOf(&config).Validate("Config.Backoff"); err != nil {
		return nil, err
	}
	o := &Outputs{queue: queue, config: config}
	o.link = chain.LinkOf(o.step)
	return o, nil
}

// Middleware ties the messages that h produces to their source. It belongs outermost, and needs Decorate.
func (o *Outputs) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(o.step)(h)
}

func (outputs *Outputs) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		out, o := next(c)
		if o.Next != chain.Done || len(out) == 0 {
			return out, o
		}
		if c.Nacked() { // it comes again and produces them again
			return nil, chain.Outcome{}
		}
		c.Detach() // the source's snapshot is needed until its outputs are published
		t := &tie{source: c}
		for i, msg := range out {
			if msg == nil { // Recover, further in, makes an error of it
				continue
			}
			if msg == c.Msg { // a copy is published, so that the source can come again as it was
				msg = msg.CopyWithContext()
				out[i] = msg
			}
			// Metadata copied from a redriven source would give the output an origin that is not its own. Any producer
			// can write metadata that look like a letter's. A consumer of a dead-letter topic passes the letter's
			// metadata on.
			if own := inside.Poison.ProducerMetadata(msg.Metadata); len(own) != len(msg.Metadata) &&
				!hidden.Of(outputs.queue).IsDeadLetterTopic(message.SubscribeTopicFromCtx(c.Ctx)) {
				msg.Metadata = own
			}
			msg.SetContext(context.WithValue(chain.CarryTransaction(msg.Context(), c.Ctx), tieKey{}, t))
		}
		return out, o
	}
}

// Decorate is the router's publisher decorator that goes with the middleware. Add it before all other decorators, so
// that it gets the messages as the handler made them. Messages without a tie pass through.
func (o *Outputs) Decorate(pub message.Publisher) (message.Publisher, error) {
	if pub == nil { // a handler without outputs
		return nil, nil
	}
	broker := outage.New(outage.Config{Name: "outputs: the publisher of outputs", MaxHold: o.config.MaxHold,
		Unavailable: brokerUnavailable, Lost: outage.Lost, Nacked: outage.Nacked, Logger: o.config.Logger})
	return &outputPublisher{Publisher: pub, outputs: o, broker: broker}, nil
}

// tie connects produced messages with the call that they came from.
type tie struct {
	source *chain.Call
	used   atomic.Bool
}

type tieKey struct{}

// take returns the call, once: a copy of an output's context can turn up in other messages.
func (t *tie) take() *chain.Call {
	if t == nil || t.used.Swap(true) {
		return nil
	}
	return t.source
}

func tieOf(messages []*message.Message) *tie {
	for _, msg := range messages {
		if t, ok := msg.Context().Value(tieKey{}).(*tie); ok {
			return t
		}
	}
	return nil
}

// brokerUnavailable reports whether err says that the broker of outputs is unavailable. A missing topic is an error of
// the output.
func brokerUnavailable(err error) bool { return outage.Unavailable(err) && !outage.NoPlace(err) }
