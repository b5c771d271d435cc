package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/deadletter"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/poison"
)

// OutputsConfig configures Outputs. The zero value is useful.
type OutputsConfig struct {
	// Attempts is how often an output is published at the most. Default: 5. An error that is permanent or invalid ends
	// the attempts at once, and so does a deadline of the source that leaves no second for another. Outputs refused together are
	// then published one by one, and each counts for itself. An attempt that fails because the broker is away does not count.
	Attempts int
	// MaxHold is how long a source is held at most while the broker of its outputs is away, before it is given back to come
	// again: its handler has succeeded, and nothing is counted. Keep it below the time after which the source's broker delivers
	// a message again that was not acked. Default: 20 s, or 15 minutes for messages of wmamqp's Subscriber.
	MaxHold time.Duration
	// Backoff says how long to wait between attempts, while the source is held. A retry-after is waited for up to 30 s.
	Backoff Backoff
	// Classifier judges the publisher's errors. Default: marks and built-in knowledge.
	Classifier *classify.Classifier
	// Logger is told of outputs that are not protected. Default: none.
	Logger watermill.LoggerAdapter
	// OnOutputError is told of each refused publish. A hook that panics is logged.
	OnOutputError func(context.Context, error)
}

// Outputs protects the messages that a handler produces. The router publishes them after all middlewares have returned,
// where no middleware sees a refusal: the source is nacked and handled again, without end. Outputs ties each produced
// message to its source, and its decorator around the handler's publisher tries again, and at last sets the source
// aside with reason output_undeliverable, so that the messages behind it go on. While the broker of the outputs is away the
// source is held, and given back at last. It also takes off what a handler passed
// on of its source's origin and redrives: the story of the source is not that of its outputs.
type Outputs struct {
	queue  *poison.Queue
	inside deadletter.Inside // of queue
	config OutputsConfig
	untied sync.Once
}

// NewOutputs returns an Outputs that dead-letters the source of outputs that cannot be published, with queue. An error names the
// field of config that is wrong.
func NewOutputs(queue *poison.Queue, config OutputsConfig) (*Outputs, error) {
	if config.Attempts == 0 {
		config.Attempts = 5
	}
	config.Backoff.setDefaults()
	if config.Logger == nil {
		config.Logger = watermill.NopLogger{}
	}
	if queue == nil {
		return nil, errors.New("middleware: NewOutputs: the queue is nil: give the poison.Queue of the handlers")
	}
	if config.Attempts < 1 {
		return nil, fmt.Errorf("middleware: OutputsConfig.Attempts is %d: it must be at least 1", config.Attempts)
	}
	if config.MaxHold < 0 {
		return nil, fmt.Errorf("middleware: OutputsConfig.MaxHold is %s: it must not be negative", config.MaxHold)
	}
	if err := config.Backoff.validate("OutputsConfig.Backoff"); err != nil {
		return nil, err
	}
	return &Outputs{queue: queue, inside: deadletter.Of(queue), config: config}, nil
}

// Middleware ties the messages that h produces to their source. It is the outermost part, and needs Decorate.
func (o *Outputs) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(o.step)(h)
}

func init() { chain.Register((*Outputs).step) }

func (o *Outputs) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, error) {
		out, err := next(c)
		if err != nil || len(out) == 0 {
			return out, err
		}
		if c.Nacked() { // it comes again, and produces them again
			return nil, nil
		}
		c.Detach() // the source's snapshot is needed until its outputs are published
		t := &tie{source: c}
		for i, msg := range out {
			if msg == nil { // Recover, further in, makes an error of it
				continue
			}
			if msg == c.Msg { // the source passed on: what is published is a copy, so that the source can come again
				msg = msg.CopyWithContext()
				out[i] = msg
			}
			// A redriven message passed on would give its output an origin that is not the output's, and any producer can write
			// one that looks like a letter. A consumer of a dead-letter topic passes the story on as it is.
			if own := poison.ProducerMetadata(msg.Metadata); len(own) != len(msg.Metadata) && !o.inside.IsDeadLetterTopic(message.SubscribeTopicFromCtx(c.Ctx)) {
				msg.Metadata = own
			}
			msg.SetContext(context.WithValue(chain.CarryTransaction(msg.Context(), c.Ctx), tieKey{}, t))
		}
		return out, nil
	}
}

// Decorate is the router's publisher decorator that goes with the middleware. It must be added before all others, so
// that it sees the messages as the handler made them. Messages without a tie pass through.
// A decorator that changes a payload should assign a new one: of a source's outputs at most 1 MiB is copied, and if a decorator
// writes into the bytes of the others and they are refused, their source comes again or is set aside.
func (o *Outputs) Decorate(pub message.Publisher) (message.Publisher, error) {
	if pub == nil { // a handler without outputs; the router asks whether it has one before it closes it
		return nil, nil
	}
	guard := outage.New(outage.Config{Name: "middleware: the publisher of outputs", MaxHold: o.config.MaxHold,
		Away: brokerAway, Lost: outage.Lost, Logger: o.config.Logger})
	return &outputPublisher{Publisher: pub, outputs: o, guard: guard}, nil
}

// tie binds produced messages to the call they came from.
type tie struct {
	source *chain.Call
	used   atomic.Bool
}

type tieKey struct{}

// take returns the call, once: a copy of an output's context may turn up anywhere.
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

// brokerAway reports whether err says that the broker of outputs is away. A topic that is missing says so of the output.
func brokerAway(err error) bool { return outage.Away(err) && !outage.NoPlace(err) }
