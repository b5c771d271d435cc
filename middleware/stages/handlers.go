package stages

import (
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/decorated"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Handler is a handler with its stages.
type Handler struct {
	handlers []*message.Handler
	topics   []Topic
}

// Topic is a topic that messages wait in, or with a Store re-enter from.
type Topic struct {
	Name string
	// Group is the consumer group that Subscriber was asked for.
	Group string
	// Delay is that of the stage, or 0 of a Store's re-entry topic.
	Delay time.Duration
}

// AddMiddleware adds middlewares to the handler and to all of its stages, as message.Handler does.
func (h *Handler) AddMiddleware(m ...message.HandlerMiddleware) {
	for _, handler := range h.handlers {
		handler.AddMiddleware(m...)
	}
}

// Handlers are the router's handlers, the one of the live topic first.
func (h *Handler) Handlers() []*message.Handler { return slices.Clone(h.handlers) }

// Topics are the handler's stage topics, in the order of their stages, those of retired ones last.
func (h *Handler) Topics() []Topic { return slices.Clone(h.topics) }

// AddHandler adds a handler to the router as Router.AddHandler does, and one for each of its stages: the same function, the
// same output topic, the same middlewares. In the router stages are named <handler>.retry.5s; to everything inside they are
// the handler itself. The publisher of outputs is closed when the last of them has stopped. An error leaves the router as
// it was. Like the router it panics at a name that is there already.
func (s *Stages) AddHandler(router *message.Router, name, topic string, sub message.Subscriber, publishTopic string, pub message.Publisher, h message.HandlerFunc) (*Handler, error) {
	if s == nil {
		return nil, noStages(name)
	}
	if safecall.IsNil(pub) || safecall.IsNil(sub) {
		return nil, fmt.Errorf("stages: add handler %q: the publisher or subscriber is nil; use AddConsumerHandler for a handler without outputs", name)
	}
	if h == nil {
		return nil, fmt.Errorf("stages: add handler %q: its function is nil", name)
	}
	if decorated.ClosedTogether(pub, s.config.Publisher) {
		return nil, fmt.Errorf("stages: add handler %q: its publisher is Config.Publisher (%T) too, which the router closes when the handler stops: "+
			"give the stages a publisher of their own", name, s.config.Publisher)
	}
	if err := s.queue.CheckPublisher(pub); err != nil {
		return nil, fmt.Errorf("stages: add handler %q: %w", name, err)
	}
	outputs := &sharedPublisher{Publisher: pub}
	return s.add(router, name, topic, sub, false, func(as string, sub message.Subscriber) *message.Handler {
		outputs.users.Add(1)
		return router.AddHandler(as, topic, sub, publishTopic, outputs, s.watched(h, as == name))
	})
}

// AddConsumerHandler adds a handler without outputs as Router.AddConsumerHandler does, and its stages. See AddHandler.
func (s *Stages) AddConsumerHandler(router *message.Router, name, topic string, sub message.Subscriber, h message.NoPublishHandlerFunc) (*Handler, error) {
	if s == nil {
		return nil, noStages(name)
	}
	if safecall.IsNil(sub) {
		return nil, fmt.Errorf("stages: add handler %q: the subscriber is nil", name)
	}
	if h == nil {
		return nil, fmt.Errorf("stages: add handler %q: its function is nil", name)
	}
	return s.add(router, name, topic, sub, false, func(as string, sub message.Subscriber) *message.Handler {
		watched := s.watched(func(msg *message.Message) ([]*message.Message, error) { return nil, h(msg) }, as == name)
		return router.AddConsumerHandler(as, topic, sub, func(msg *message.Message) error {
			_, err := watched(msg)
			return err
		})
	})
}

// Extend adds stages to a handler without outputs that the router has already, one that cqrs added for instance: those of
// its processors that return a *message.Handler give it as origin; of others it is nil, and AddMiddleware of the result
// reaches the stages alone. The topic is the one that the handler is subscribed to. Middlewares of the handler alone are added
// after Extend, with AddMiddleware of the result: stages cannot have those that the handler has already, and that is an error.
func (s *Stages) Extend(router *message.Router, origin *message.Handler, name, topic string) (*Handler, error) {
	if s == nil {
		return nil, noStages(name)
	}
	if router == nil {
		return nil, fmt.Errorf("stages: extend handler %q: the router is nil", name)
	}
	h := router.Handlers()[name]
	if h == nil {
		return nil, fmt.Errorf("stages: extend handler %q: the router has no handler of this name; add it first", name)
	}
	extended, err := s.add(router, name, topic, nil, true, func(as string, sub message.Subscriber) *message.Handler {
		watched := s.watched(h, false)
		return router.AddConsumerHandler(as, topic, sub, func(msg *message.Message) error {
			out, err := watched(msg)
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
	return fmt.Errorf("stages: add handler %q: there are no stages; configure Subscriber and Publisher", name)
}

// add prepares everything that can fail before it touches the router. The handler that it extends is there already.
func (s *Stages) add(router *message.Router, name, topic string, sub message.Subscriber, extends bool, add func(string, message.Subscriber) *message.Handler) (*Handler, error) {
	if router == nil {
		return nil, fmt.Errorf("stages: add handler %q: the router is nil", name)
	}
	if name == "" || topic == "" {
		return nil, fmt.Errorf("stages: add handler %q on topic %q: name and topic must not be empty, stages are named after them", name, topic)
	}
	if s.queue.Covers(topic) {
		return nil, fmt.Errorf("stages: add handler %q: %q is a topic of dead letters, whose consumers set aside what fails and have no stages; add it to the router", name, topic)
	}
	handler, err := s.plan(name, topic)
	if err != nil {
		return nil, fmt.Errorf("stages: add handler %q: %w", name, err)
	}
	if extends {
		handler.extends = router
		if err := handler.unlike(); err != nil {
			return nil, err
		}
	}
	forget, err := s.register(handler)
	if err != nil {
		return nil, err
	}
	subscribers, err := s.subscribers(router, handler, sub)
	if err != nil {
		forget()
		return nil, fmt.Errorf("stages: add handler %q: %w", name, err)
	}
	added := &Handler{}
	if !extends {
		added.handlers = append(added.handlers, add(name, sub))
	}
	for i, wait := range handler.waits {
		added.handlers = append(added.handlers, add(name+wait.suffix, subscribers[i]))
		added.topics = append(added.topics, Topic{wait.topic, wait.group(), wait.delay})
	}
	return added, nil
}
