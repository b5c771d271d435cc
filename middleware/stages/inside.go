package stages

import (
	"time"

	"github.com/watermill-spillway/spillway/internal/delayed"
	"github.com/watermill-spillway/spillway/internal/inside"
)

// Inside returns what Spillway's own packages call of Stages, and its users do not. Nothing is promised of it.
func (s *Stages) Inside() inside.Stages { return (*inner)(s) }

// inner is Stages with the methods that only Spillway's own packages call.
type inner Stages

func (in *inner) Store() *delayed.Store {
	if in == nil {
		return nil
	}
	return in.config.Store.Inside()
}

func (in *inner) HandlerOf(stageTopic string) (handler, topic string, ok bool) {
	if in == nil {
		return "", "", false
	}
	in.mu.RLock()
	defer in.mu.RUnlock()
	for _, h := range in.handlers {
		if h.topicNamed(stageTopic) != nil && (!ok || h.name < handler) {
			handler, topic, ok = h.name, h.topic, true
		}
	}
	return handler, topic, ok
}

func (in *inner) Total() (total time.Duration) {
	for _, stage := range in.active {
		total += (*Stages)(in).longest(stage.Delay)
	}
	return total
}
