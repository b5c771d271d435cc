package stages

import (
	"context"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway/delay"
)

// Backlog is what waits in the Store for one handler.
type Backlog struct {
	// Handler and Topic are the handler and its live topic. They are empty if no handler of this process has the StageTopic.
	Handler string `json:"handler"`
	Topic   string `json:"topic"`
	// StageTopic is the topic that the messages come back from.
	StageTopic string `json:"stage_topic"`
	// Messages is the number of messages. It includes those that are being published.
	Messages int `json:"messages"`
	// Overdue is how long the first of them is overdue, by the database's clock. It is 0 if none is.
	Overdue time.Duration `json:"overdue"`
}

// Store returns the Store of the Config. It is nil if messages wait in topics.
func (s *Stages) Store() *delay.Store {
	if s == nil {
		return nil
	}
	return s.config.Store
}

// Backlog returns what waits in the Store, handler by handler, most messages first. It reads the whole table, so call it now and then, for
// people and metrics. Handlers that share a re-entry topic are one entry, under the name of one of them. Without a Store Backlog returns
// an error.
func (s *Stages) Backlog(ctx context.Context) ([]Backlog, error) {
	if s.Store() == nil {
		return nil, errors.New("stages: Backlog: there is no Config.Store: ask the broker how many messages wait in stage topics")
	}
	waiting, err := s.config.Store.Waiting(ctx)
	if err != nil {
		return nil, err
	}
	of := make(map[string]*handler)
	for _, h := range s.snapshot() {
		for _, t := range h.topics {
			if was := of[t.topic]; was == nil || h.name < was.name {
				of[t.topic] = h
			}
		}
	}
	all := make([]Backlog, len(waiting))
	for i, w := range waiting {
		all[i] = Backlog{StageTopic: w.Topic, Messages: w.Messages, Overdue: max(0, -w.Next)}
		if h := of[w.Topic]; h != nil {
			all[i].Handler, all[i].Topic = h.name, h.topic
		}
	}
	return all, nil
}
