package stages

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/foreign"
	"github.com/watermill-spillway/spillway/internal/logging"
)

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
				logging.StageUnprotected.Write(s.config.Logger, errUnprotected,
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
	if own := foreign.Middlewares(h.extends, h.name) - foreign.Middlewares(h.extends, h.inRouter()); own > 0 {
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
	for _, has := range foreign.Subscribers(router) {
		if has.Elem().Type() == reflect.TypeFor[*mixed]() {
			has = has.Elem().Elem().FieldByName("Subscriber")
		}
		if has.Elem().Kind() == reflect.Pointer && has.Elem().Type() == of.Type() && has.Elem().Pointer() == of.Pointer() {
			return true
		}
	}
	return false
}
