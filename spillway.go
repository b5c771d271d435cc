package spillway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// Config configures a Channel. Only Publisher is required. The fields below Logger configure the parts in detail. A part
// takes the Logger, and the classifier made of Classify, from here unless it has its own.
type Config struct {
	// Publisher takes the dead letters: a publisher of its own, or the dead-letter store itself. It must not be the
	// publisher of a handler, which the router closes when that handler stops.
	Publisher message.Publisher
	// Idempotency makes each message take effect once. Default: none.
	Idempotency idempotency.Store
	// Logger receives what happens to failing messages: an Error line per dead letter, an Info line per retry, each with its cause.
	// Payloads are never logged. Default: the logger of the first router that is given to Attach or Plugin. A Channel that is used
	// by Middleware alone meets no router, and then logs nothing without a Logger.
	Logger watermill.LoggerAdapter

	// Classify says how errors are judged.
	Classify classify.Config
	// Queue says where dead letters go and what they carry.
	Queue poison.QueueConfig
	// Deliveries says how often a message may end the process before it is set aside. It takes effect with a store, or a
	// broker's own count. It needs Attach, or Plugin.
	Deliveries crashlimit.LimitConfig
	// Guard says which messages never reach a handler.
	Guard middleware.GuardConfig
	// Stages say how handlers are tried again later, while the messages behind go on: those that are added with
	// Channel.Stages. They take effect with a Subscriber. They need Attach, or Plugin.
	Stages stages.Config
	// Retry says how often, and when, a failed handler is called again at once.
	Retry middleware.RetryConfig
	// Receiver says how messages are recognised. It takes effect with a store as Idempotency.
	Receiver idempotency.ReceiverConfig
	// Purge says how long the receiver's keys are kept: it takes effect with a Retention. Default: for good. It
	// needs Attach, or Plugin.
	Purge idempotency.PurgeConfig
	// Outputs says how produced messages are insisted on.
	Outputs middleware.OutputsConfig
}

// Channel is a dead letter channel: the parts of Spillway composed in the only right order. It is safe for concurrent
// use by any number of handlers and routers, and needs no closing: what it does beside them begins and ends with routers.
type Channel struct {
	queue   *poison.Queue
	outputs *middleware.Outputs
	chain   message.HandlerMiddleware
	plugins []message.RouterPlugin
	stages  *stages.Stages
	logger  *logging.Late // nil with a Config.Logger

	attachedToNil atomic.Bool
}

// New returns a Channel, or an error that names the field of config with which messages could be lost. With a store it
// creates the store's table where there is none.
func New(ctx context.Context, config Config) (*Channel, error) {
	var late *logging.Late
	if config.Logger == nil {
		late = logging.NewLate()
		config.Logger = late
	}
	if err := config.distribute(); err != nil {
		return nil, err
	}
	classifier, err := classify.New(config.Classify)
	if err != nil {
		return nil, fmt.Errorf("spillway: %w", err)
	}
	config.shareClassifier(classifier)

	queue, err := poison.NewQueue(config.Publisher, config.Queue)
	if err != nil {
		return nil, fmt.Errorf("spillway: %w", err)
	}
	outputs, err := middleware.NewOutputs(queue, config.Outputs)
	if err != nil {
		return nil, fmt.Errorf("spillway: %w", err)
	}
	guard, err := middleware.NewGuard(config.Guard)
	if err != nil {
		return nil, fmt.Errorf("spillway: %w", err)
	}
	retry, err := middleware.NewRetry(config.Retry)
	if err != nil {
		return nil, fmt.Errorf("spillway: %w", err)
	}
	ch := &Channel{queue: queue, outputs: outputs, logger: late}
	parts := []any{outputs, queue}
	if config.Deliveries.Store != nil || config.Deliveries.Delivered != nil {
		if config.Deliveries.Coordinates == nil && config.Queue.Origin != nil {
			config.Deliveries.Coordinates = coordinates(config.Queue.Origin)
		}
		limit, err := crashlimit.NewLimit(config.Deliveries)
		if err != nil {
			return nil, fmt.Errorf("spillway: %w", err)
		}
		parts, ch.plugins = append(parts, limit), append(ch.plugins, limit.Plugin)
	}
	parts = append(parts, guard)
	if config.Stages.Subscriber != nil {
		if ch.stages, err = stages.New(queue, config.Stages); err != nil {
			return nil, fmt.Errorf("spillway: %w", err)
		}
		parts, ch.plugins = append(parts, ch.stages), append(ch.plugins, ch.stages.Plugin)
		config.Purge.Stages = max(config.Purge.Stages, ch.stages.Total())
	}
	parts = append(parts, retry)
	if config.Idempotency != nil {
		receiver, err := idempotency.NewReceiver(config.Idempotency, config.Receiver)
		if err != nil {
			return nil, fmt.Errorf("spillway: %w", err)
		}
		parts = append(parts, receiver)
	}
	if config.Purge.Retention != 0 {
		purge, err := idempotency.NewPurge(config.Idempotency, config.Purge)
		if err != nil {
			return nil, fmt.Errorf("spillway: %w", err)
		}
		ch.plugins = append(ch.plugins, purge.Plugin)
	}
	ch.chain = chain.EnterParts(append(parts, middleware.Recover{})...)
	return ch, nil
}

// Attach protects all handlers of router: the middleware, the decorator that insists on their outputs, and a check at
// start-up that dead letters have somewhere to go, as far as their Naming does without the handler's name. Call it before the
// router runs and before other middlewares and decorators are added. Handlers may be added at any time.
//
// Watermill's Retry, PoisonQueue and Recoverer have nothing left to do beside it. Its Deduplicator must not stand inside: it
// remembers a message before the handler succeeded, and so swallows the second attempt. Its Timeout belongs inside, added
// after Attach: outside, it ends the message's context before the outputs are published.
//
// What is wrong is an error of Router.Run: a nil Channel is one of router's, and a nil router one of every other router that the
// Channel is attached to.
func (ch *Channel) Attach(router *message.Router) {
	switch {
	case ch == nil && router == nil:
		return
	case ch == nil:
		router.AddPlugin(ch.Plugin) // which says it
		return
	case router == nil:
		ch.attachedToNil.Store(true)
		return
	}
	ch.logTo(router)
	router.AddMiddleware(ch.Middleware)
	router.AddPublisherDecorators(ch.DecoratePublisher)
	router.AddSubscriberDecorators(ch.queue.InitializeOnSubscribe)
	router.AddPlugin(ch.Plugin)
}

// Plugin is the router's plugin that does what goes on beside the handlers, as long as they run: it registers the process
// for Deliveries, purges old keys, moves what is due in the store of Stages, and looks for stages that nobody has any more, as
// stages.Stages.Plugin says.
// Attach adds it.
func (ch *Channel) Plugin(router *message.Router) error {
	switch {
	case ch == nil:
		return errors.New("spillway: the Channel is nil, so nothing would be protected: check the error of New")
	case router == nil:
		return errors.New("spillway: Plugin: the router is nil")
	case ch.attachedToNil.Load():
		return errors.New("spillway: Attach was called with a nil router, whose handlers are not protected: check the error of message.NewRouter")
	}
	ch.logTo(router)
	for _, plugin := range ch.plugins {
		if err := plugin(router); err != nil {
			return err
		}
	}
	return nil
}

// logTo takes the logger of router where the Config has none.
func (ch *Channel) logTo(router *message.Router) {
	if ch.logger != nil {
		ch.logger.Bind(router.Logger())
	}
}

// Middleware protects one handler, for those who do not Attach: handler.AddMiddleware(channel.Middleware). Outputs are
// protected when the router also has DecoratePublisher.
func (ch *Channel) Middleware(h message.HandlerFunc) message.HandlerFunc { return ch.chain(h) }

// DecoratePublisher is the router's publisher decorator that insists on the outputs of handlers with Middleware. It is
// added before other decorators. Messages of other handlers pass through it. It refuses a handler's publisher that is
// Config.Publisher too.
func (ch *Channel) DecoratePublisher(pub message.Publisher) (message.Publisher, error) {
	if err := ch.queue.CheckPublisher(pub); err != nil {
		return nil, fmt.Errorf("spillway: %w", err)
	}
	return ch.outputs.Decorate(pub)
}

// Stages adds handlers that are tried again later: channel.Stages().AddHandler(router, ...) in place of
// router.AddHandler(...). Without Config.Stages it is nil, and to add a handler is an error that says so.
func (ch *Channel) Stages() *stages.Stages { return ch.stages }

// Queue returns the channel's poison.Queue, to set a message aside outside of a handler or to initialise destinations.
func (ch *Channel) Queue() *poison.Queue { return ch.queue }

// distribute gives each part what is configured for all.
func (c *Config) distribute() error {
	if s := &c.Stages; s.Subscriber == nil && (s.Publisher != nil || s.Stages != nil || s.Store != nil) {
		return fmt.Errorf("spillway: Config.Stages is configured, and has no Subscriber: messages would wait in their stages for good")
	}
	if r := &c.Receiver; c.Idempotency == nil && (r.Key != nil || r.Version != nil || r.Lease != 0 || r.Consumer != "" || r.MarkPublished || r.Optimistic) {
		return fmt.Errorf("spillway: Config.Receiver is configured, and there is no Config.Idempotency: nothing would be recognised")
	}
	if d := &c.Deliveries; d.Store == nil && d.Delivered == nil && (d.Max != 0 || d.Service != "" || d.Consumer != "") {
		return fmt.Errorf("spillway: Config.Deliveries is configured, and has no Store: nothing would be counted")
	}
	if c.Receiver.Lease > 0 && c.Deliveries.Delivered != nil {
		return fmt.Errorf("spillway: Config.Receiver.Lease is set, and Config.Deliveries.Delivered: a message whose key is leased is given back, " +
			"which a broker counts as a delivery; give Config.Deliveries a Store instead")
	}
	if p := &c.Purge; p.Retention == 0 && (p.Every != 0 || p.Batch != 0 || p.Horizon != 0 || p.Pause != 0) {
		return fmt.Errorf("spillway: Config.Purge is configured, and has no Retention: nothing would be purged")
	}
	if c.Purge.Retention != 0 {
		if c.Idempotency == nil {
			return fmt.Errorf("spillway: Config.Purge.Retention is %s, and there are no keys to purge: give Config.Idempotency", c.Purge.Retention)
		}
	}
	if c.Retry.MaskText == nil {
		c.Retry.MaskText = c.Queue.MaskText
	}
	for _, logger := range []*watermill.LoggerAdapter{&c.Queue.Logger, &c.Retry.Logger, &c.Receiver.Logger, &c.Outputs.Logger, &c.Deliveries.Logger, &c.Purge.Logger, &c.Stages.Logger} {
		if *logger == nil {
			*logger = c.Logger
		}
	}
	if logger := c.Logger; c.Classify.OnRulePanic == nil {
		c.Classify.OnRulePanic = func(text string, stack []byte) {
			logger.Error("A classification rule failed; it has no say", fmt.Errorf("%s\n%s", text, stack), nil)
		}
	}
	return nil
}

// coordinates tells messages without an id apart by what the adapter knows of them.
func coordinates(origin func(*message.Message) poison.Origin) func(*message.Message) string {
	return func(msg *message.Message) string {
		at := origin(msg)
		if at.Offset == "" {
			return ""
		}
		return at.Topic + "/" + at.Partition + "/" + at.Offset
	}
}

func (c *Config) shareClassifier(classifier *classify.Classifier) {
	for _, part := range []**classify.Classifier{&c.Queue.Classifier, &c.Retry.Classifier, &c.Outputs.Classifier, &c.Stages.Classifier} {
		if *part == nil {
			*part = classifier
		}
	}
}
