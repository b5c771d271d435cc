package stages

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
)

// watched logs once when a message comes to a handler past the stages: nothing would be staged, and a stage's failures would
// be nacked without end. Of a stage each message tells, of the live topic what these Stages have met.
func (s *Stages) watched(h message.HandlerFunc, live bool) message.HandlerFunc {
	met := func(msg *message.Message) bool {
		r := chain.ReentryOf(msg.Context())
		return r == nil || r.Met
	}
	if live {
		met = func(*message.Message) bool { return s.passed.Load() }
	}
	var once sync.Once
	return func(msg *message.Message) ([]*message.Message, error) {
		if !met(msg) {
			once.Do(func() {
				s.config.Logger.Error("A handler with stages is reached without Stages.Middleware, and nothing of it is tried again later: Attach the channel to its "+
					"router, or add the middleware to the handler and, with AddMiddleware of what was returned, to its stages", errPassedBy,
					watermill.LogFields{"handler": message.HandlerNameFromCtx(msg.Context()), "topic": message.SubscribeTopicFromCtx(msg.Context())})
			})
		}
		return h(msg)
	}
}

var errPassedBy = errors.New("handler with stages, and without their middleware")

// same reports whether two subscribers are one. Those that cannot be compared are not.
func same(a, b message.Subscriber) bool {
	if a == nil || b == nil || !reflect.ValueOf(a).Comparable() || !reflect.ValueOf(b).Comparable() {
		return false
	}
	return a == b
}

// middlewaresOf counts the middlewares that a handler of the router has for itself. Watermill has no door to them: of a router
// that is built otherwise none are seen.
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

// hasSubscriber reports whether sub is, or can be, the subscriber of a handler that the router has already. Of a router that runs
// it cannot be seen: handlers come and go there.
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
		if has := handler.FieldByName("subscriber"); has.Kind() == reflect.Interface && has.Elem().Kind() == reflect.Pointer &&
			has.Elem().Type() == of.Type() && has.Elem().Pointer() == of.Pointer() {
			return true
		}
	}
	return false
}

// unlike returns an error if a handler that was extended has middlewares that its stages lack.
func (h *handler) unlike() error {
	if h.extends == nil || len(h.waits) == 0 {
		return nil
	}
	if own := middlewaresOf(h.extends, h.name) - middlewaresOf(h.extends, h.name+h.waits[0].suffix); own > 0 {
		return fmt.Errorf("stages: extend handler %q: it has %d middleware(s) of its own that its stages lack, so the next attempts would run without: "+
			"add them after Extend, with AddMiddleware of what it returns", h.name, own)
	}
	return nil
}
