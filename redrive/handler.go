package redrive

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/naming"
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
	return &Handler{rules: working, parking: park, naming: scheme, minWait: minWait,
		busy: make(chan struct{}, working.Concurrency)}, nil
}

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
		logging.RedriveTopicMissing.Write(h.Logger, err,
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
