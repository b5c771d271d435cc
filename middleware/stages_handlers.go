package middleware

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/contain"
)

// staged is a handler with its stages.
type staged struct {
	stages      *Stages
	name, topic string
	waits       []*stageTopic // of which the active come first
	byNumber    []*stageTopic // the topic of each active stage; with a Store the same for all
}

// stageTopic is a topic that messages wait in, or with a Store re-enter from.
type stageTopic struct {
	of          *staged
	topic       string
	suffix      string // of the stage's name in the router and of its group
	delay       time.Duration
	concurrency int
	numbers     []int         // the stages that wait here, none where they are retired
	shared      bool          // with other handlers
	holds       time.Duration // how long a message is held at the most
	gate        *gate
	ready       atomic.Bool // the topic is there
	outlasts    sync.Once   // an ack deadline
}

// StagedHandler is a handler with its stages.
type StagedHandler struct {
	handlers []*message.Handler
	topics   []StageTopic
}

// StageTopic is a topic that messages wait in, or with a Store re-enter from.
type StageTopic struct {
	Topic string
	// Group is the consumer group that Subscriber was asked for.
	Group string
	// Delay is that of the stage, or 0 with a Store.
	Delay time.Duration
}

// AddMiddleware adds middlewares to the handler and to all of its stages, as message.Handler does.
func (h *StagedHandler) AddMiddleware(m ...message.HandlerMiddleware) {
	for _, handler := range h.handlers {
		handler.AddMiddleware(m...)
	}
}

// Handlers are the router's handlers, the one of the live topic first.
func (h *StagedHandler) Handlers() []*message.Handler { return slices.Clone(h.handlers) }

// Topics are the handler's stage topics, in the order of their stages, those of retired ones last.
func (h *StagedHandler) Topics() []StageTopic { return slices.Clone(h.topics) }

// AddHandler adds a handler to the router as Router.AddHandler does, and one for each of its stages: the same function, the
// same output topic, the same middlewares. In the router stages are named <handler>.retry.5s; to everything inside they are
// the handler itself. The publisher of outputs is closed when the last of them has stopped. An error leaves the router as
// it was. Like the router it panics at a name that is there already.
func (s *Stages) AddHandler(router *message.Router, name, topic string, sub message.Subscriber, publishTopic string, pub message.Publisher, h message.HandlerFunc) (*StagedHandler, error) {
	if s == nil {
		return nil, noStages(name)
	}
	if contain.IsNil(pub) || contain.IsNil(sub) {
		return nil, fmt.Errorf("middleware: add handler %q: the publisher or subscriber is nil; use AddConsumerHandler for a handler without outputs", name)
	}
	if h == nil {
		return nil, fmt.Errorf("middleware: add handler %q: its function is nil", name)
	}
	if same(pub, s.config.Publisher) {
		return nil, fmt.Errorf("middleware: add handler %q: its publisher is StagesConfig.Publisher too, which the router would close with this handler; "+
			"give the stages one of their own", name)
	}
	outputs := &outlet{Publisher: pub}
	return s.add(router, name, topic, sub, func(name string, sub message.Subscriber) *message.Handler {
		outputs.users.Add(1)
		return router.AddHandler(name, topic, sub, publishTopic, outputs, s.watched(h))
	})
}

// AddConsumerHandler adds a handler without outputs as Router.AddConsumerHandler does, and its stages. See AddHandler.
func (s *Stages) AddConsumerHandler(router *message.Router, name, topic string, sub message.Subscriber, h message.NoPublishHandlerFunc) (*StagedHandler, error) {
	if s == nil {
		return nil, noStages(name)
	}
	if contain.IsNil(sub) {
		return nil, fmt.Errorf("middleware: add handler %q: the subscriber is nil", name)
	}
	if h == nil {
		return nil, fmt.Errorf("middleware: add handler %q: its function is nil", name)
	}
	watched := s.watched(func(msg *message.Message) ([]*message.Message, error) { return nil, h(msg) })
	return s.add(router, name, topic, sub, func(name string, sub message.Subscriber) *message.Handler {
		return router.AddConsumerHandler(name, topic, sub, func(msg *message.Message) error {
			_, err := watched(msg)
			return err
		})
	})
}

// Extend adds stages to a handler without outputs that the router has already, one that cqrs added for instance: those of
// its processors that return a *message.Handler give it as origin; of others it is nil, and AddMiddleware of the result
// reaches the stages alone. The topic is the one that the handler is subscribed to.
func (s *Stages) Extend(router *message.Router, origin *message.Handler, name, topic string) (*StagedHandler, error) {
	if s == nil {
		return nil, noStages(name)
	}
	if router == nil {
		return nil, fmt.Errorf("middleware: extend handler %q: the router is nil", name)
	}
	h := s.watched(router.Handlers()[name])
	if h == nil {
		return nil, fmt.Errorf("middleware: extend handler %q: the router has no handler of this name; add it first", name)
	}
	extended, err := s.add(router, name, topic, nil, func(name string, sub message.Subscriber) *message.Handler {
		return router.AddConsumerHandler(name, topic, sub, func(msg *message.Message) error {
			out, err := h(msg)
			if err == nil && len(out) > 0 {
				err = classify.Permanent(fmt.Errorf("extended handler %q: %w; add it with AddHandler", name, message.ErrOutputInNoPublisherHandler))
			}
			return err
		})
	})
	if err == nil && origin != nil {
		extended.handlers = append([]*message.Handler{origin}, extended.handlers...)
	}
	return extended, err
}

func noStages(name string) error {
	return fmt.Errorf("middleware: add handler %q: there are no stages; configure Subscriber and Publisher", name)
}

// add prepares everything that can fail before it touches the router. Without a subscriber the origin handler is there.
func (s *Stages) add(router *message.Router, name, topic string, sub message.Subscriber, add func(string, message.Subscriber) *message.Handler) (*StagedHandler, error) {
	if router == nil {
		return nil, fmt.Errorf("middleware: add handler %q: the router is nil", name)
	}
	if name == "" || topic == "" {
		return nil, fmt.Errorf("middleware: add handler %q on topic %q: name and topic must not be empty, stages are named after them", name, topic)
	}
	if s.config.Queue.Covers(topic) {
		return nil, fmt.Errorf("middleware: add handler %q: %q is a topic of dead letters, whose consumers set aside what fails and have no stages; add it to the router", name, topic)
	}
	handler, err := s.staged(name, topic)
	if err != nil {
		return nil, fmt.Errorf("middleware: add handler %q: %w", name, err)
	}
	subscribers, err := s.subscribers(handler)
	if err != nil {
		return nil, fmt.Errorf("middleware: add handler %q: %w", name, err)
	}
	if err := s.register(handler); err != nil {
		return nil, errors.Join(err, closeAll(subscribers))
	}
	added := &StagedHandler{}
	if sub != nil {
		added.handlers = append(added.handlers, add(name, sub))
	}
	for i, wait := range handler.waits {
		added.handlers = append(added.handlers, add(name+wait.suffix, subscribers[i]))
		added.topics = append(added.topics, StageTopic{wait.topic, wait.group(), wait.delay})
	}
	return added, nil
}

// staged works out the topics of a handler's stages.
func (s *Stages) staged(name, topic string) (*staged, error) {
	h := &staged{stages: s, name: name, topic: topic}
	if s.config.Store != nil {
		wait, err := h.wait(Stage{}, 0)
		if err != nil {
			return nil, err
		}
		for n := range s.active {
			wait.numbers = append(wait.numbers, n+1)
			h.byNumber = append(h.byNumber, wait)
		}
	} else {
		for i, stage := range s.active {
			wait, err := h.wait(stage, i+1)
			if err != nil {
				return nil, err
			}
			h.byNumber = append(h.byNumber, wait)
		}
	}
	for _, stage := range s.config.Stages {
		if stage.Retired {
			if _, err := h.wait(stage, 0); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

// outlet is a publisher of several handlers, which the router closes with each of them.
type outlet struct {
	message.Publisher
	users atomic.Int32
}

func (o *outlet) Close() error {
	if o.users.Add(-1) > 0 {
		return nil
	}
	return o.Publisher.Close()
}

// String is what the router's context and logs call the publisher.
func (o *outlet) String() string { return nameOf(o.Publisher) }

// nameOf names a publisher or subscriber as the router does.
func nameOf(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return strings.TrimLeft(fmt.Sprintf("%T", v), "*")
}

// wait is the topic of a stage, which may be that of an earlier one.
func (h *staged) wait(stage Stage, number int) (*stageTopic, error) {
	source := StageSource{Topic: h.topic, Handler: h.name, Delay: stage.Delay}
	naming := h.stages.config.Naming
	topic, err := naming.topic(source)
	if err != nil {
		return nil, err
	}
	for _, wait := range h.waits {
		if wait.topic == topic {
			if number > 0 && wait.delay != stage.Delay {
				return nil, sameName(topic, wait.delay, stage.Delay)
			}
			if number > 0 {
				wait.numbers = append(wait.numbers, number)
			}
			return wait, nil
		}
	}
	wait := &stageTopic{
		of: h, gate: newGate(), topic: topic, suffix: stageSuffix(stage.Delay), delay: stage.Delay, concurrency: stage.Concurrency, shared: naming.shared(source, topic),
	}
	if number > 0 {
		wait.numbers = []int{number}
	}
	wait.holds = evenly(h.stages.longest(stage.Delay), h.stages.config.MaxHold)
	if wait.holds < h.stages.longest(stage.Delay) {
		h.stages.config.Logger.Info("A stage is longer than a message is held; its messages go round", watermill.LogFields{
			"handler": h.name, "stage_topic": topic, "delay": stage.Delay, "held": wait.holds,
		})
	}
	h.waits = append(h.waits, wait)
	return wait, nil
}

// evenly parts a wait into equal ones, none longer than most. All of a topic's messages are held for the same time, so one
// that goes round waits behind later ones for no more than the jitter's amplitude.
func evenly(wait, most time.Duration) time.Duration {
	if wait == 0 { // a re-entry topic holds nothing
		return 0
	}
	rounds := (wait-1)/most + 1
	return (wait-1)/rounds + 1
}

// group is the consumer group of the topic: this handler's own, whoever else has a handler of this name on another topic.
func (t *stageTopic) group() string { return t.of.topic + "." + t.of.name + t.suffix }

func (s *Stages) subscribers(h *staged) (subscribers []message.Subscriber, err error) {
	for _, wait := range h.waits {
		var sub message.Subscriber
		err := contain.Call("middleware.Subscriber", func() (err error) {
			sub, err = s.config.Subscriber(wait.topic, wait.group())
			return err
		})
		if err == nil && contain.IsNil(sub) {
			err = errors.New("it is nil")
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("StagesConfig.Subscriber for stage topic %q: %w", wait.topic, err), closeAll(subscribers))
		}
		subscribers = append(subscribers, wait.around(sub))
	}
	return subscribers, nil
}

func closeAll(subscribers []message.Subscriber) (err error) {
	for _, sub := range subscribers {
		err = errors.Join(err, sub.Close())
	}
	return err
}

// register remembers a handler. One of the same name on the same topic is another router's of this process.
func (s *Stages) register(h *staged) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.handlers[h.name]; other != nil && other.topic != h.topic {
		return fmt.Errorf("middleware: add handler %q on topic %q: these Stages have one of this name on topic %q; handlers are told by their names", h.name, h.topic, other.topic)
	}
	for _, other := range s.handlers {
		for _, wait := range h.waits {
			if other.name != h.name && other.has(wait.topic) && !s.config.SharedTopics {
				return fmt.Errorf("middleware: add handler %q on topic %q: handler %q on topic %q has the same stage topic %q, so one would take the "+
					"other's messages; name it after the handler too, as StagePerHandler does, or set SharedTopics where every consumer group sees every message",
					h.name, h.topic, other.name, other.topic, wait.topic)
			}
		}
	}
	if other := s.handlers[h.name]; other != nil { // a topic that has its handler already keeps what comes
		for _, wait := range h.waits {
			if i := slices.IndexFunc(other.waits, func(w *stageTopic) bool { return w.topic == wait.topic }); i >= 0 {
				wait.gate = other.waits[i].gate
			}
		}
	}
	s.handlers[h.name] = h
	return nil
}

func (h *staged) has(topic string) bool {
	return slices.ContainsFunc(h.waits, func(w *stageTopic) bool { return w.topic == topic })
}
