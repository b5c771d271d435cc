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
	"github.com/watermill-spillway/spillway/internal/destination"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
	"github.com/watermill-spillway/spillway/poison"
)

// HandlerConfig configures a Handler. Rules.Allow and Park are required.
type HandlerConfig struct {
	Rules
	// Park takes the letters that are not redriven, into <topic>.parked and <topic>.quarantine. A letters.Store will do. These
	// topics must exist before the first letter. If Park is a poison.SourceInitializer or poison.Initializer, it creates them
	// or fails. For any other publisher, create both topics yourself: if one is missing, a letter for it is nacked without
	// end. A decorator that hides the initializer is refused: see poison.WithInitializer. Required.
	Park message.Publisher
	// MinWait is the shortest time between a letter's latest failure or redrive, whichever is later, and its next redrive. So
	// MaxRedrives redrives take at least MaxRedrives times MinWait. Letters behind it wait too. A subscriber that holds a
	// transaction for its message holds it during the wait. A negative value means no wait. Default: DefaultMinWait.
	MinWait time.Duration
}

// Handler redrives the letters of dead-letter topics as they arrive. It is safe for concurrent use.
type Handler struct {
	rules
	parking message.Publisher
	minWait time.Duration
	busy    chan struct{} // a place for each letter that is being published
	ready   sync.Map      // dead-letter topics whose parked and quarantine topics exist
}

// NewHandler returns a Handler that redrives letters through publisher, or an error that names the wrong field. The publisher
// must confirm what it takes, and must belong to no other handler of the router: the router closes a handler's publisher
// when that handler stops.
func NewHandler(publisher message.Publisher, config HandlerConfig) (*Handler, error) {
	if config.MinWait == 0 {
		config.MinWait = DefaultMinWait
	}
	return newHandler("HandlerConfig", publisher, config.Rules, config.Park, config.MinWait)
}

func newHandler(owner string, publisher message.Publisher, r Rules, park message.Publisher, minWait time.Duration) (*Handler, error) {
	working, err := newRules(owner, publisher, r)
	if err != nil {
		return nil, err
	}
	if safecall.IsNil(park) {
		return nil, fmt.Errorf("redrive: %s.Park is nil: letters that are not redriven would be lost; give a publisher or a Store", owner)
	}
	if err := destination.Check(park); err != nil {
		return nil, fmt.Errorf("redrive: %s.Park: %w", owner, err)
	}
	if err := r.ofTopic(owner); err != nil {
		return nil, err
	}
	return &Handler{rules: working, parking: park, minWait: minWait, busy: make(chan struct{}, working.Concurrency)}, nil
}

// DefaultMinWait is the default of HandlerConfig.MinWait. It is shorter than the ack deadlines of the pub/subs that have one.
const DefaultMinWait = 10 * time.Second

// Initialize creates <topic>.parked and <topic>.quarantine of each dead-letter topic, if Park is a poison.SourceInitializer or
// poison.Initializer. An error names the topic. Plugin calls Initialize. Call it yourself if you add Handle to a router.
func (h *Handler) Initialize(topics ...string) error {
	for _, topic := range topics {
		err := safecall.Call("publisher", func() error {
			return destination.Initialize(h.parking, topic, poison.ParkedTopic(topic), poison.QuarantineTopic(topic))
		})
		if err != nil {
			return fmt.Errorf("redrive: create the topics for letters of %q that are not redriven: %w", logged(topic), err)
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
		h.Logger.Error("The topics for letters that are not redriven may not exist; the letter is published there anyway", err,
			watermill.LogFields{"dead_letter": logged(topic)})
	}
}

// Handle redrives one letter, after it has rested for MinWait. It is for Router.AddConsumerHandler. Handle returns nil after
// one of these:
//   - the letter was published to its topic;
//   - the message was published unchanged to <topic>.parked: it is no letter, was not chosen, is not allowed, or the
//     publisher refused it;
//   - the letter was published to <topic>.quarantine: it was redriven MaxRedrives times.
//
// Handle returns an error, so that the letter is redelivered, if the message's context ended first, or if Park refused too.
func (h *Handler) Handle(msg *message.Message) error {
	if msg == nil {
		return errors.New("redrive: the message is nil")
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
	if !h.Filter.Matches(l) {
		return h.park(ctx, msg, l, topic, parked, errNotChosen)
	}
	if h.spent(l) {
		return h.quarantine(ctx, msg, l, topic)
	}
	target, err := h.target(l)
	if err != nil {
		h.Logger.Error("A letter is not redriven", err, fields(l, target))
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
	pause := min(h.minWait-time.Since(since), h.minWait)
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
	return h.redrive(ctx, l, target)
}

// park publishes the message unchanged to the parked topic.
func (h *Handler) park(ctx context.Context, msg *message.Message, l poison.Letter, topic string, out outcome, why error) (outcome, error) {
	l.Topic = topic
	h.makeReady(topic)
	if err := h.publish(ctx, h.parking, l, poison.ParkedTopic(topic), nil, func(error) *message.Message { return msg.Copy() }); err != nil {
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
	err := h.publish(ctx, h.parking, l, poison.QuarantineTopic(topic), nil, func(refusal error) *message.Message {
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
