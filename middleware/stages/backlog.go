package stages

import "github.com/watermill-spillway/spillway/delay"

// Store returns the Store of the Config. It is nil if messages wait in topics. Store.Waiting counts what waits, by the
// topics that messages come back from.
func (s *Stages) Store() *delay.Store {
	if s == nil {
		return nil
	}
	return s.config.Store
}

// HandlerOf returns the handler of a topic that waiting messages come back from, and the handler's live topic. It
// reports false if no handler of this process has the topic. Of handlers that share the topic, it returns the one whose
// name comes first.
func (s *Stages) HandlerOf(stageTopic string) (handler, topic string, ok bool) {
	if s == nil {
		return "", "", false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.handlers {
		if h.topicNamed(stageTopic) != nil && (!ok || h.name < handler) {
			handler, topic, ok = h.name, h.topic, true
		}
	}
	return handler, topic, ok
}
