package redrive

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/contain"
	"github.com/watermill-spillway/spillway/poison"
)

// HandlerConfig configures a Handler. Publisher, Park and Allow are required.
type HandlerConfig struct {
	// Publisher takes the letters back to their topics. It must confirm what it takes, and be no handler's: the router
	// closes a handler's publisher when that handler stops.
	Publisher message.Publisher
	// Park takes what is not brought back, into <topic>.parked and <topic>.quarantine. A Store will do.
	Park message.Publisher
	// Allow lists the topics, by their exact names, that letters may be published to. No letter goes anywhere else,
	// whatever its metadata say.
	Allow []string
	// To is published to instead of each letter's origin topic. It must be in Allow.
	To string
	// Entry names the topic at which a letter enters instead of its origin topic, or "" for its origin topic. It is the origin
	// topic that must be in Allow, in either case. The Entry method of middleware.Stages lets letters enter at the first retry
	// stage, apart from live traffic. The name must not come from the letter: nothing else judges it.
	Entry func(poison.Letter) string
	// Filter chooses the letters; all others are parked. Its fields for a Store must be empty.
	Filter Filter
	// Rate is how many letters are published per second at the most. 0 means as fast as possible.
	Rate float64
	// Concurrency is how many are published at the same time, of all topics together. Default: 1.
	Concurrency int
	// MaxRedrives is how often a letter comes back; one that failed again after that is quarantined. Default:
	// DefaultMaxRedrives.
	MaxRedrives int
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
}

// NewHandler returns a Handler, or an error that names the field of config that is wrong.
func NewHandler(config HandlerConfig) (*Handler, error) { return newHandler(config, "HandlerConfig") }

func newHandler(config HandlerConfig, owner string) (*Handler, error) {
	if contain.IsNil(config.Publisher) {
		return nil, fmt.Errorf("redrive: %s.Publisher is nil: letters have no way back", owner)
	}
	if contain.IsNil(config.Park) {
		return nil, fmt.Errorf("redrive: %s.Park is nil: letters that are not brought back would be lost; give a publisher or a Store", owner)
	}
	if err := config.Filter.onLetter(owner + ".Filter"); err != nil {
		return nil, err
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

// Handle brings one letter back. It returns nil when the letter was published to its topic, or else placed in
// <topic>.parked (unchanged: not chosen, not allowed, not a letter, refused by Publisher) or <topic>.quarantine. It
// returns an error, and the letter comes again, when the message's context ended first, or when Park refused too.
//
// It is for Router.AddConsumerHandler; with Plugin the router's own protection lets its messages pass.
func (h *Handler) Handle(msg *message.Message) error {
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
	if err := h.publish(ctx, h.config.Park, l, poison.ParkedTopic(topic), func(error) *message.Message { return msg.Copy() }); err != nil {
		return givenBack, errors.Join(why, err)
	}
	h.onParked(ctx, l, why)
	return out, nil
}

// quarantine publishes the letter with the reason that says why it comes back no more, and all else of its story.
func (h *Handler) quarantine(ctx context.Context, msg *message.Message, l poison.Letter, topic string) (outcome, error) {
	build := msg.Copy
	if _, ours := msg.Metadata[poison.KeyFailureClass]; !ours { // of Watermill's PoisonQueue: our keys tell it all again
		told := l
		told.Failure.Reason = classify.ReasonMaxRedrives
		build = told.Encode
	}
	err := h.publish(ctx, h.config.Park, l, poison.QuarantineTopic(topic), func(error) *message.Message {
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
