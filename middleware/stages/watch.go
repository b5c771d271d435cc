package stages

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
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
	if own := middlewaresOf(h.extends, h.name) - middlewaresOf(h.extends, h.inRouter()); own > 0 {
		return cannotExtend(h.name, fmt.Errorf("it has %d middleware(s) of its own that its stages lack: "+
			"add them after Extend, with AddMiddleware of what Extend returns", own))
	}
	return nil
}

// middlewaresOf counts the middlewares that a handler of the router has for itself. Watermill does not export them. If
// its router is built otherwise, middlewaresOf returns 0.
func middlewaresOf(router *message.Router, handler string) (n int) {
	list := reflect.ValueOf(router).Elem().FieldByName("middlewares")
	if list.Kind() != reflect.Slice || list.Type().Elem().Kind() != reflect.Struct {
		return 0
	}
	for i := range list.Len() {
		name, all := list.Index(i).FieldByName("HandlerName"), list.Index(i).FieldByName("IsRouterLevel")
		if name.Kind() == reflect.String && all.Kind() == reflect.Bool && !all.Bool() && name.String() == handler {
			n++
		}
	}
	return n
}

// hasSubscriber reports whether sub is, or can be, the subscriber of a handler that the router has already. It reports
// true for a router that runs, where handlers come and go.
func hasSubscriber(router *message.Router, sub message.Subscriber) bool {
	if router.IsRunning() {
		return true
	}
	of := reflect.ValueOf(sub)
	handlers := reflect.ValueOf(router).Elem().FieldByName("handlers")
	if of.Kind() != reflect.Pointer || handlers.Kind() != reflect.Map {
		return false
	}
	for each := handlers.MapRange(); each.Next(); {
		handler := reflect.Indirect(each.Value())
		if handler.Kind() != reflect.Struct {
			return false
		}
		has := handler.FieldByName("subscriber")
		if has.Kind() == reflect.Interface && has.Elem().Type() == reflect.TypeFor[*mixed]() {
			has = has.Elem().Elem().FieldByName("Subscriber")
		}
		if has.Kind() == reflect.Interface && has.Elem().Kind() == reflect.Pointer && has.Elem().Type() == of.Type() &&
			has.Elem().Pointer() == of.Pointer() {
			return true
		}
	}
	return false
}
