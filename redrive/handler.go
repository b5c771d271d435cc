package redrive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
	"github.com/watermill-spillway/spillway/poison"
)

// HandlerConfig configures a Handler. Publisher, Park and Allow are required.
type HandlerConfig struct {
	// Publisher takes the letters back to their topics. It must confirm what it takes, and be no handler's: the router
	// closes a handler's publisher when that handler stops.
	Publisher message.Publisher
	// Park takes what is not brought back, into <topic>.parked and <topic>.quarantine. A Store will do. Plugin, Initialize and
	// Drain have a poison.SourceInitializer or poison.Initializer make sure that these topics exist, and fail if they cannot.
	// For any other publisher, create both topics yourself: where one is missing, the first letter that belongs there is given
	// back without end, and on Kafka stops its partition. A decorator that hides the initializer is refused: see
	// poison.WithInitializer.
	Park message.Publisher
	// Allow lists the topics, by their exact names, that letters may be published to. No letter goes anywhere else,
	// whatever its metadata say.
	Allow []string
	// To is published to instead of each letter's origin topic. It must be in Allow.
	To string
	// Entry names the topic at which a letter enters instead of its origin topic, or "" for its origin topic. It is the origin
	// topic that must be in Allow, in either case. The method ReentryTopic of stages.Stages lets letters enter at the first retry
	// stage, apart from live traffic. The name must not come from the letter: nothing else judges it.
	Entry func(poison.Letter) string
	// Filter chooses the letters; all others are parked. Its fields for a Store must be empty.
	Filter Filter
	// Rate is how often Publisher is called per second at most, for letters that it refused and is offered again too. 0
	// means as fast as possible.
	Rate float64
	// Concurrency is how many are published at the same time, of all topics together. Default: 1.
	Concurrency int
	// MaxRedrives is how often a letter comes back; one that failed again after that is quarantined. Default:
	// DefaultMaxRedrives.
	MaxRedrives int
	// MinWait is how long a letter rests before it is brought back, counted from its last failure or its last redrive,
	// whichever is later. So MaxRedrives rounds last at least as many times MinWait, and not a millisecond. Letters behind it
	// wait too, and a subscriber that holds a transaction for its message holds it meanwhile. A negative value means no wait.
	// Default: DefaultMinWait for a Handler, and no wait for Drain, which a person starts.
	MinWait time.Duration
	// By is who does it, for the record.
	By string
	// PublishAttempts is how often a letter is offered to a publisher. Default: 3.
	PublishAttempts int
	// Logger is told of refusals, never of a payload. Default: none.
	Logger watermill.LoggerAdapter
	// Hooks are called on what happens.
	Hooks Hooks
}

// Handler brings the letters of dead-letter topics back as they arrive. It is safe for concurrent use.
type Handler struct {
	rules
	config HandlerConfig
	busy   chan struct{} // a place for each that publishes
	ready  sync.Map      // dead-letter topics whose parked and quarantine topics exist
}

// NewHandler returns a Handler, or an error that names the field of config that is wrong.
func NewHandler(config HandlerConfig) (*Handler, error) { return newHandler(config, "HandlerConfig") }

func newHandler(config HandlerConfig, owner string) (*Handler, error) {
	if err := wayBack(owner+".Publisher", config.Publisher); err != nil {
		return nil, err
	}
	if safecall.IsNil(config.Park) {
		return nil, fmt.Errorf("redrive: %s.Park is nil: letters that are not brought back would be lost; give a publisher or a Store", owner)
	}
	if err := poison.CheckInitializer(config.Park); err != nil {
		return nil, fmt.Errorf("redrive: %s.Park: %w", owner, err)
	}
	if err := config.Filter.onLetter(owner + ".Filter"); err != nil {
		return nil, err
	}
	if config.MinWait == 0 && owner == "HandlerConfig" {
		config.MinWait = DefaultMinWait
	}
	h := &Handler{config: config, rules: rules{
		owner: owner, allow: config.Allow, to: config.To, entry: config.Entry, rate: config.Rate, concurrency: config.Concurrency,
		maxRedrives: config.MaxRedrives, attempts: config.PublishAttempts, by: config.By, logger: config.Logger, hooks: config.Hooks,
	}}
	h.rules.setDefaults()
	if err := h.rules.validate(); err != nil {
		return nil, err
	}
	h.busy = make(chan struct{}, h.concurrency)
	return h, nil
}

// DefaultMinWait is how long a letter rests before a Handler brings it back, where nothing else is configured. It is shorter
// than the ack deadlines of the pub/subs that have one.
const DefaultMinWait = 10 * time.Second

// Initialize makes sure that what is not brought back from the dead-letter topics has a place: <topic>.parked and
// <topic>.quarantine of each, if Park is a poison.SourceInitializer or poison.Initializer. An error names the topic. Plugin
// calls it; call it yourself where Handle is added to a router by hand.
func (h *Handler) Initialize(topics ...string) error {
	for _, topic := range topics {
		err := safecall.Call("publisher", func() error {
			return poison.InitializeFor(h.config.Park, topic, poison.ParkedTopic(topic), poison.QuarantineTopic(topic))
		})
		if err != nil {
			return fmt.Errorf("redrive: no place for letters of %q that are not brought back: %w", logged(topic), err)
		}
		h.ready.Store(topic, nil)
	}
	return nil
}

// makeReady is Initialize for a topic that it was not called for. Park may take the letter all the same, so that an error is
// no refusal.
func (h *Handler) makeReady(topic string) {
	if _, ready := h.ready.Load(topic); ready {
		return
	}
	if err := h.Initialize(topic); err != nil {
		h.logger.Error("The topics for letters that are not brought back may not exist; the letter is published all the same", err,
			watermill.LogFields{"dead_letter": logged(topic)})
	}
}

// Handle brings one letter back. It returns nil when the letter was published to its topic, or else placed in
// <topic>.parked (unchanged: not chosen, not allowed, not a letter, refused by Publisher) or <topic>.quarantine. It
// returns an error, and the letter comes again, when the message's context ended first, or when Park refused too.
//
// It waits until the letter has rested for MinWait. It is for Router.AddConsumerHandler; with Plugin the router's own protection lets its messages pass.
func (h *Handler) Handle(msg *message.Message) error {
	if msg == nil {
		return errors.New("redrive: the message to bring back is nil")
	}
	topic := message.SubscribeTopicFromCtx(msg.Context())
	if topic == "" { // used outside of a router
		topic = "unknown"
	}
	_, err := h.handle(msg.Context(), msg, topic)
	return err
}

// outcome is what became of a message of a dead-letter topic.
type outcome int

const (
	givenBack outcome = iota
	redriven
	quarantined
	refused
	parked
	failed
)

var (
	errNotChosen = errors.New("redrive: the filter does not choose this letter")
	errGivenBack = errors.New("redrive: the message is given back, its context ended")
)

func (h *Handler) handle(ctx context.Context, msg *message.Message, topic string) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return givenBack, fmt.Errorf("%w: %w", errGivenBack, err)
	}
	l, err := poison.Decode(msg)
	if err != nil {
		return h.park(ctx, msg, original(msg), topic, parked, err)
	}
	l.Topic = topic
	if !h.config.Filter.matches(l, topic) {
		return h.park(ctx, msg, l, topic, parked, errNotChosen)
	}
	if h.spent(l) {
		return h.quarantine(ctx, msg, l, topic)
	}
	target, err := h.target(l)
	if err != nil {
		h.logger.Error("A letter is not redriven", err, fields(l, target))
		out, parking := h.park(ctx, msg, l, topic, refused, err)
		if parking == nil {
			h.onRefused(ctx, l, target)
		}
		return out, parking
	}
	if !h.rested(ctx, l) {
		return givenBack, fmt.Errorf("%w: %w", errGivenBack, ctx.Err())
	}
	if err := h.turn(ctx); err != nil {
		return givenBack, fmt.Errorf("%w: %w", errGivenBack, err)
	}
	err = h.bring(ctx, l, target)
	if err == nil {
		h.onRedrive(ctx, l, target)
		return redriven, nil
	}
	if ctx.Err() != nil {
		return givenBack, fmt.Errorf("%w: %w", errGivenBack, errors.Join(ctx.Err(), err))
	}
	return h.park(ctx, msg, l, topic, failed, err)
}

// rested waits until the letter has rested for MinWait, and reports whether ctx lasted that long. A time in the future, of
// another clock or a forger, counts as now.
func (h *Handler) rested(ctx context.Context, l poison.Letter) bool {
	since := l.Failure.LastFailedAt
	if l.Redrive.At.After(since) {
		since = l.Redrive.At
	}
	pause := min(h.config.MinWait-time.Since(since), h.config.MinWait)
	return pause <= 0 || wait.For(ctx, pause)
}

// turn waits for a free place, which bring gives back, and for the rate.
func (h *Handler) turn(ctx context.Context) error {
	select {
	case h.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := h.wait(ctx)
	if err != nil {
		<-h.busy
	}
	return err
}

func (h *Handler) bring(ctx context.Context, l poison.Letter, target string) error {
	defer func() { <-h.busy }()
	return h.redrive(ctx, h.config.Publisher, l, target)
}

// park publishes the message unchanged to the parked topic.
func (h *Handler) park(ctx context.Context, msg *message.Message, l poison.Letter, topic string, out outcome, why error) (outcome, error) {
	l.Topic = topic
	h.makeReady(topic)
	if err := h.publish(ctx, h.config.Park, l, poison.ParkedTopic(topic), nil, func(error) *message.Message { return msg.Copy() }); err != nil {
		return givenBack, errors.Join(why, err)
	}
	h.onParked(ctx, l, why)
	return out, nil
}

// quarantine publishes the letter with the reason that says why it comes back no more, and all else of its story. One that
// is too large with it goes as it is.
func (h *Handler) quarantine(ctx context.Context, msg *message.Message, l poison.Letter, topic string) (outcome, error) {
	build := msg.Copy
	if _, ours := msg.Metadata[poison.KeyFailureClass]; !ours { // of Watermill's PoisonQueue: our keys tell it all again
		told := l
		told.Failure.Reason = classify.ReasonMaxRedrives
		build = told.Encode
	}
	h.makeReady(topic)
	err := h.publish(ctx, h.config.Park, l, poison.QuarantineTopic(topic), nil, func(refusal error) *message.Message {
		if refusal != nil && poison.IsTooLarge(refusal) {
			return msg.Copy()
		}
		q := build()
		q.Metadata.Set(poison.KeyFailureReason, classify.ReasonMaxRedrives)
		return q
	})
	if err != nil {
		return givenBack, err
	}
	h.onQuarantine(ctx, l)
	return quarantined, nil
}
