package middleware

import (
	"errors"
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

// same tells whether two publishers are one. Those that cannot be compared are not.
func same(a, b message.Publisher) bool {
	if a == nil || b == nil || !reflect.TypeOf(a).Comparable() || !reflect.TypeOf(b).Comparable() {
		return false
	}
	return a == b
}
