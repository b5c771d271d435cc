package redrive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/consume"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// HandlerConfig configures a Handler. Rules.Allow and Park are required.
type HandlerConfig struct {
	Rules
	// Park takes the letters that are not redriven, into <topic>.parked and <topic>.quarantine. A letters.Store will
	// do. These topics must exist before the first letter. If Park is a poison.Initializer, it
	// creates them or fails. For any other publisher, create both topics yourself: if one is missing, a letter for it
	// is nacked without end. A decorator that hides the initializer is refused: see poison.WithInitializer. Required.
	Park message.Publisher
	// MinWait is the shortest time between a letter's latest failure or redrive, whichever is later, and its next
	// redrive. So MaxRedrives redrives take at least MaxRedrives times MinWait. Letters behind it wait too. A
	// subscriber that holds a transaction for its message holds it during the wait. A negative value means no wait.
	// Default: DefaultMinWait.
	MinWait time.Duration
}

// Handler redrives the letters of dead-letter topics as they arrive, after each has rested for MinWait. It acks a
// message after one of these:
//   - the letter was published to its topic;
//   - the message was published unchanged to <topic>.parked: it is no letter, was not chosen, is not allowed, or the
//     publisher refused it;
//   - the letter was published to <topic>.quarantine: it was redriven MaxRedrives times.
//
// It nacks the message if the message's context ended first, or if Park refused too. It is safe for concurrent use.
type Handler struct {
	functions
	rules
	parking message.Publisher
	naming  naming.Scheme
	minWait time.Duration
	busy    chan struct{} // a place for each letter that is being published
	ready   sync.Map      // dead-letter topics whose parked and quarantine topics exist
	notice  destination.Notice
}

// NewHandler returns a Handler that redrives letters through publisher, or an error that names the wrong field. The
// publisher must confirm what it takes, and must belong to no other handler of the router: the router closes a
// handler's publisher when that handler stops.
func NewHandler(publisher message.Publisher, config HandlerConfig) (*Handler, error) {
	if config.MinWait == 0 {
		config.MinWait = DefaultMinWait
	}
	return newHandler("HandlerConfig", publisher, config.Rules, config.Park, config.Naming, config.MinWait)
}

func newHandler(owner string, publisher message.Publisher, r Rules, park message.Publisher, scheme naming.Scheme,
	minWait time.Duration) (*Handler, error) {
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
	if err := destination.CheckKeeps(park); err != nil {
		return nil, fmt.Errorf("redrive: %s.Park: %w", owner, err)
	}
	if err := scheme.Validate(); err != nil {
		return nil, fmt.Errorf("redrive: %s.Naming: %w", owner, err)
	}
	if err := r.ofTopic(owner); err != nil {
		return nil, err
	}
	return &Handler{functions: hidden.By(inner{}), rules: working, parking: park, naming: scheme, minWait: minWait,
		busy: make(chan struct{}, working.Concurrency)}, nil
}

type functions = hidden.Handle[inner]

// DefaultMinWait is the default of HandlerConfig.MinWait. It is shorter than the ack deadlines of the pub/subs that
// have one.
const DefaultMinWait = 10 * time.Second

// initialize creates <topic>.parked and <topic>.quarantine of each dead-letter topic, if Park is a
// poison.Initializer. An error names the topic.
func (h *Handler) initialize(topics ...string) error {
	for _, topic := range topics {
		err := safecall.Call("publisher", func() error {
			return destination.Initialize(h.parking, topic, h.naming.ParkedTopic(topic),
				h.naming.QuarantineTopic(topic))
		})
		if err != nil {
			return fmt.Errorf("redrive: create the topics for letters of %q that are not redriven: %w", logged(topic),
				err)
		}
		h.notice.Log(h.Logger, h.parking, "letters that are not redriven", h.naming.ParkedTopic(topic),
			h.naming.QuarantineTopic(topic))
		h.ready.Store(topic, nil)
	}
	return nil
}

// makeReady is initialize for a topic that it was not called for. Park may take the letter all the same, so that an
// error is no refusal.
func (h *Handler) makeReady(topic string) {
	if _, ready := h.ready.Load(topic); ready {
		return
	}
	if err := h.initialize(topic); err != nil {
		eventRedriveTopicMissing.Write(h.Logger, err,
			logging.Fields{logging.DeadLetterTopic: topic})
	}
}

// Handle redrives one letter. It is for Router.AddConsumerHandler, without Plugin: the topics of Park are then made
// with the first letter of each topic.
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

// Plugin adds to the router a handler for each dead-letter topic, named spillway_redrive_<topic>, that redrives its
// letters. A chain of the whole router lets these messages pass, so that a failure here never becomes the dead letter
// of a dead letter. Plugin makes the topics of
// Park. The router closes sub. A wrong argument is an error of Router.Run, and so
// is a publisher of a handler that is also a publisher of h.
func (h *Handler) Plugin(sub message.Subscriber, topics ...string) message.RouterPlugin {
	add := consume.Plugin("redrive", "spillway_redrive_", sub, topics, func(topic string, msg *message.Message) error {
		_, err := h.handle(msg.Context(), msg, topic)
		return err
	})
	return func(router *message.Router) error {
		if err := add(router); err != nil {
			return err
		}
		router.AddPublisherDecorators(func(pub message.Publisher) (message.Publisher, error) {
			return pub, h.checkPublisher(pub)
		})
		return h.initialize(topics...)
	}
}

// checkPublisher returns an error if pub, the publisher of a handler, is also the publisher or the Park of h. The
// router closes pub when its handler stops, and h could not publish from then on.
func (h *Handler) checkPublisher(pub message.Publisher) error {
	for name, own := range map[string]message.Publisher{"the publisher": h.publisher, "HandlerConfig.Park": h.parking} {
		if decorated.ClosedTogether(pub, own) {
			return fmt.Errorf("redrive: %s (%T) is also the publisher of another handler, which the router closes when that "+
				"handler stops: give the redrive handler a publisher of its own", name, own)
		}
	}
	return nil
}

// outcome is what became of a message of a dead-letter topic.
type outcome int

const (
	requeued outcome = iota
	redriven
	quarantined
	refused
	parked
	failed
	closed // sealed, and it does not open
)

var (
	errNotChosen = errors.New("redrive: the filter does not choose this letter")
	errRequeued  = errors.New("redrive: the message is requeued: its context ended")
)

func (h *Handler) handle(ctx context.Context, msg *message.Message, topic string) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return requeued, fmt.Errorf("%w: %w", errRequeued, err)
	}
	l, err := poison.Decode(msg)
	if err != nil {
		return h.park(ctx, msg, original(msg), topic, parked, err)
	}
	l.DeadLetterTopic = topic
	if !h.Filter.Matches(l) {
		return h.park(ctx, msg, l, topic, parked, errNotChosen)
	}
	if h.spent(l) {
		return h.quarantine(ctx, msg, l, topic)
	}
	target, err := h.target(l)
	if err != nil {
		logging.RedriveRefused.Write(h.Logger, err, fields(l, target))
		out, parking := h.park(ctx, msg, l, topic, refused, err)
		if parking == nil {
			h.onRefused(ctx, l, target)
		}
		return out, parking
	}
	waits, done := graceful.Waits(ctx)
	defer done()
	if !h.rested(waits, l) {
		return requeued, fmt.Errorf("%w: %w", errRequeued, waits.Err())
	}
	opened, err := l.Open(ctx, h.Seal)
	if err != nil {
		return h.closed(ctx, msg, l, topic, err)
	}
	if err := h.turn(waits); err != nil {
		return requeued, fmt.Errorf("%w: %w", errRequeued, err)
	}
	err = h.bring(ctx, l, opened, target)
	if err == nil {
		h.onRedrive(ctx, l, target)
		return redriven, nil
	}
	if ctx.Err() != nil {
		return requeued, fmt.Errorf("%w: %w", errRequeued, errors.Join(ctx.Err(), err))
	}
	return h.park(ctx, msg, l, topic, failed, err)
}

// rested waits until the letter has rested for MinWait, and reports whether ctx lasted that long. A time in the future,
// of another clock or a forger, counts as now.
func (h *Handler) rested(ctx context.Context, l poison.Letter) bool {
	since := l.Failure.LastFailedAt
	if l.Redrive.At.After(since) {
		since = l.Redrive.At
	}
	pause := min(h.minWait-time.Since(since), h.minWait)
	return pause <= 0 || timing.Wait(ctx, pause)
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

func (h *Handler) bring(ctx context.Context, l, opened poison.Letter, target string) error {
	defer func() { <-h.busy }()
	_, err := h.redrive(ctx, l, opened, target)
	return err
}
