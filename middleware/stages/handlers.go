package stages

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
)

// AddHandler adds a handler to the router as Router.AddHandler does. The handler gets the messages of the live topic,
// and those of its stages that are due. Its stages stop with it, and have its middlewares. After an error the router is
// as before. If the name is taken, AddHandler panics as the router does.
func (s *Stages) AddHandler(router *message.Router, name, topic string, sub message.Subscriber, publishTopic string,
	pub message.Publisher, h message.HandlerFunc) (*message.Handler, error) {
	switch {
	case s == nil:
		return nil, noStages(name)
	case safecall.IsNil(pub) || safecall.IsNil(sub):
		return nil, cannotAdd(name,
			errors.New("the publisher or subscriber is nil; for a handler without outputs use AddConsumerHandler"))
	case h == nil:
		return nil, cannotAdd(name, errNoFunction)
	case decorated.ClosedTogether(pub, s.config.Publisher):
		return nil, cannotAdd(name,
			fmt.Errorf("its publisher (%T) is Config.Publisher too, which the router closes when the handler stops: give the "+
				"stages a publisher of their own", s.config.Publisher))
	}
	if err := hidden.Of(s.queue).CheckPublisher(pub); err != nil {
		return nil, cannotAdd(name, err)
	}
	return s.add(router, name, topic, sub, false, func(as string, sub message.Subscriber) *message.Handler {
		return router.AddHandler(as, topic, sub, publishTopic, pub, s.watched(h))
	})
}

// AddConsumerHandler adds a handler without outputs as Router.AddConsumerHandler does, and its stages. See AddHandler.
func (s *Stages) AddConsumerHandler(router *message.Router, name, topic string, sub message.Subscriber,
	h message.NoPublishHandlerFunc) (*message.Handler, error) {
	switch {
	case s == nil:
		return nil, noStages(name)
	case safecall.IsNil(sub):
		return nil, cannotAdd(name, errors.New("the subscriber is nil"))
	case h == nil:
		return nil, cannotAdd(name, errNoFunction)
	}
	return s.add(router, name, topic, sub, false, func(as string, sub message.Subscriber) *message.Handler {
		watched := s.watched(func(msg *message.Message) ([]*message.Message, error) { return nil, h(msg) })
		return router.AddConsumerHandler(as, topic, sub, func(msg *message.Message) error {
			_, err := watched(msg)
			return err
		})
	})
}

// Extend adds stages to a handler without outputs that the router has already, such as one that a processor of cqrs
// added. Name and topic are those of the handler.
//
// Extend returns the router's handler for all of the stages, named <handler>.retry. Add a middleware of the handler
// alone after Extend, to the handler and to the one that Extend returned. Extend and Plugin return an error if the
// handler has a middleware that its stages lack.
func (s *Stages) Extend(router *message.Router, name, topic string) (*message.Handler, error) {
	switch {
	case s == nil:
		return nil, noStages(name)
	case router == nil:
		return nil, cannotExtend(name, errNoRouter)
	}
	h := router.Handlers()[name]
	if h == nil {
		return nil, cannotExtend(name, errors.New("the router has no handler of this name; add it first"))
	}
	return s.add(router, name, topic, nil, true, func(as string, sub message.Subscriber) *message.Handler {
		watched := s.watched(h)
		return router.AddConsumerHandler(as, topic, sub, func(msg *message.Message) error {
			out, err := watched(msg)
			if err == nil && len(out) > 0 {
				err = classify.Permanent(fmt.Errorf("extended handler %q: %w; add it with AddHandler", name,
					message.ErrOutputInNoPublisherHandler))
			}
			return err
		})
	})
}

var (
	errNoFunction = errors.New("its function is nil")
	errNoRouter   = errors.New("the router is nil")
)

func cannotAdd(name string, err error) error {
	return fmt.Errorf("stages: add handler %q: %w", name, err)
}

func cannotExtend(name string, err error) error {
	return fmt.Errorf("stages: extend handler %q: %w", name, err)
}

func noStages(name string) error {
	return cannotAdd(name, errors.New("there are no stages; set Config.Stages of the spillway.Channel, with a Publisher "+
		"and a Subscriber"))
}

// add does everything that can fail before it changes the router. With extends, the router has the live handler
// already.
func (s *Stages) add(router *message.Router, name, topic string, sub message.Subscriber, extends bool,
	add func(string, message.Subscriber) *message.Handler) (*message.Handler, error) {
	switch {
	case router == nil:
		return nil, cannotAdd(name, errNoRouter)
	case name == "" || topic == "":
		return nil, cannotAdd(name,
			fmt.Errorf("name and topic (%q) must not be empty, since stage topics are named after them", topic))
	case hidden.Of(s.queue).IsDeadLetterTopic(topic):
		return nil, cannotAdd(name,
			fmt.Errorf("%q is a topic of dead letters, whose consumers have no stages; add the handler to the router",
				topic))
	}
	h, err := s.plan(name, topic)
	if err != nil {
		return nil, cannotAdd(name, err)
	}
	if extends {
		h.extends = router
		if err := h.lacksMiddlewares(); err != nil {
			return nil, err
		}
	}
	forget, err := s.register(h)
	if err != nil {
		return nil, cannotAdd(name, err)
	}
	subscribers, err := s.subscribers(router, h, sub)
	if err != nil {
		forget()
		return nil, cannotAdd(name, err)
	}
	mix := newMixed(sub, !extends, subscribers)
	if extends {
		mix.Subscriber = subscribers[0].sub.Subscriber
	}
	return add(h.inRouter(), mix), nil
}

// watched logs once if messages reach a handler without Stages.Middleware. Failures of the live handler would not be
// staged, and those of its stages would be nacked without end. For a stage the message itself shows it; for the live
// topic, whether any message has met the middleware.
func (s *Stages) watched(h message.HandlerFunc) message.HandlerFunc {
	met := func(msg *message.Message) bool {
		if r := chain.ReentryOf(msg.Context()); r != nil {
			return r.Met
		}
		return s.passed.Load()
	}
	var once sync.Once
	return func(msg *message.Message) ([]*message.Message, error) {
		if !met(msg) {
			once.Do(func() {
				eventStageUnprotected.Write(s.config.Logger, errUnprotected,
					logging.Fields{logging.Handler: message.HandlerNameFromCtx(msg.Context()),
						logging.Topic: message.SubscribeTopicFromCtx(msg.Context())})
			})
		}
		return h(msg)
	}
}

var errUnprotected = errors.New("handler with stages, but without their middleware")

// lacksMiddlewares returns an error if a handler that was extended has middlewares that its stages lack.
func (h *handler) lacksMiddlewares() error {
	if h.extends == nil || len(h.topics) == 0 {
		return nil
	}
	all, known := decorated.Middlewares(h.extends, h.name)
	theirs, _ := decorated.Middlewares(h.extends, h.inRouter())
	if !known {
		return cannotExtend(h.name, errors.New("this version of Watermill does not show whether it has middlewares that its "+
			"stages lack: use AddHandler instead, or the version of Watermill before"))
	}
	if own := all - theirs; own > 0 {
		return cannotExtend(h.name, fmt.Errorf("it has %d middleware(s) of its own that its stages lack: "+
			"add them after Extend, to the handler that Extend returns too", own))
	}
	return nil
}

// hasSubscriber reports whether sub is, or can be, the subscriber of a handler that the router has already. It reports
// true for a router that runs, where handlers come and go.
func hasSubscriber(router *message.Router, sub message.Subscriber) bool {
	if router.IsRunning() {
		return true
	}
	of := reflect.ValueOf(sub)
	if of.Kind() != reflect.Pointer {
		return false
	}
	all, known := decorated.Subscribers(router)
	if !known {
		return true
	}
	for _, has := range all {
		if has.Elem().Type() == reflect.TypeFor[*mixed]() {
			has = has.Elem().Elem().FieldByName("Subscriber")
		}
		if has.Elem().Kind() == reflect.Pointer && has.Elem().Type() == of.Type() &&
			has.Elem().Pointer() == of.Pointer() {
			return true
		}
	}
	return false
}
