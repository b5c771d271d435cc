package stages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// Plugin is the router's plugin. It creates stage topics when the router starts. With a Store, it moves due messages
// while the router runs.
//
// It also looks for messages in stage topics that have no handler any more, and logs an error with topic and count. It
// finds them in a Store, and in topics if Naming has the default patterns and Publisher has a method ListWaiting, as
// that of wmkafka has.
func (s *Stages) Plugin(router *message.Router) error {
	if s == nil {
		return nil
	}
	if router == nil {
		return errors.New("stages: Plugin: the router is nil: check the error of message.NewRouter")
	}
	handlers := s.snapshot()
	if len(handlers) == 0 {
		eventStagesUnused.Write(s.config.Logger, nil, nil)
	}
	for _, h := range handlers {
		if h.extends == router {
			if err := h.lacksMiddlewares(); err != nil {
				return err
			}
		}
		for _, t := range h.topics { // before a live handler runs that could send messages there
			if err := t.initialize(); err != nil {
				return err
			}
		}
	}
	s.warnOfAbandoned()
	s.plugged.Store(true)
	if s.relay != nil {
		return s.life.Plugin(router)
	}
	return nil
}

// initialize creates the topic, once.
func (t *stageTopic) initialize() error {
	if t.ready.Load() {
		return nil
	}
	if err := destination.Initialize(t.of.stages.config.Publisher, t.of.topic, t.topic); err != nil {
		return fmt.Errorf("stages: stage topic %q of handler %q cannot be used: %w", t.topic, t.of.name, err)
	}
	t.of.stages.notice.Log(t.of.stages.config.Logger, t.of.stages.config.Publisher, "retry stages", t.topic)
	t.ready.Store(true)
	return nil
}

// runRelay runs the relay, after the handlers have subscribed that it publishes for: some pub/subs lose earlier
// messages.
func (s *Stages) runRelay(ctx context.Context) {
	ready, cancel := context.WithTimeout(ctx, maxSubscribing)
	defer cancel()
	for _, h := range s.snapshot() {
		for _, t := range h.topics {
			t.subscribed.await(ready)
		}
	}
	_ = s.relay.Run(ctx) // it ends with ctx
}

// giveUp dead-letters a message that the relay cannot publish, because it is too large.
func (s *Stages) giveUp(ctx context.Context, topic string, msg *message.Message, refusal error) error {
	s.mu.RLock()
	of := s.handlers[poison.Read(msg).Origin.Handler] // several may share the topic
	for _, h := range s.handlers {
		// QueueConfig.Origin may give another name
		if (of == nil || of.topicNamed(topic) == nil) && h.topicNamed(topic) != nil {
			of = h
		}
	}
	s.mu.RUnlock()
	if of == nil || of.topicNamed(topic) == nil {
		return refusal
	}
	ctx = chain.Within(ctx, of.name, of.topic)
	msg.SetContext(chain.WithReentry(ctx, &chain.Reentry{Handler: of.name}))
	return s.queue.Place(msg, refusal)
}

// ReentryTopic returns the topic from which a dead letter re-enters the first stage of its handler, at once and apart
// from live messages. It returns "" if the letter is not of a handler that has stages here. Pass it to the parts of
// package redrive.
func (s *Stages) ReentryTopic(letter poison.Letter) string {
	if s == nil {
		return ""
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := s.handlers[letter.Origin.Handler]
	if h == nil || h.topic != letter.Origin.Topic {
		return ""
	}
	return h.byNumber[0].topic
}

// lookTimeout bounds how long the search for abandoned messages delays the start.
const lookTimeout = 10 * time.Second

// warnOfAbandoned logs stage topics with messages that no handler of this process consumes.
func (s *Stages) warnOfAbandoned() {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	sources, known := s.topics()
	if s.config.Store != nil {
		kept, err := delays.In(s.config.Store).Waiting(ctx)
		s.unseen(err, "the delay store")
		for _, k := range kept {
			if !known[k.Topic] {
				s.abandoned(k.Topic, k.Messages)
			}
		}
	}
	publisher, ok := decorated.As[lister](s.config.Publisher)
	if !ok || !s.listed() {
		return
	}
	for _, source := range sources {
		var waiting map[string]int
		err := safecall.Call("stages: ListWaiting", func() (err error) {
			waiting, err = publisher.ListWaiting(ctx, s.prefix(source))
			return err
		})
		s.unseen(err, source)
		for _, topic := range slices.Sorted(maps.Keys(waiting)) {
			if !known[topic] && waiting[topic] > 0 && s.config.Naming.IsStage(topic) {
				s.abandoned(topic, waiting[topic])
			}
		}
	}
}

// lister is a publisher that knows in which topics messages wait.
type lister interface {
	// ListWaiting returns the topics whose names begin with prefix and hold messages that the consumer group of the
	// same name has not consumed: all of them if there is no such group, or if the broker has no groups.
	ListWaiting(ctx context.Context, prefix string) (map[string]int, error)
}

// listed reports whether stage topics have the names of their groups. A lister can then tell what was consumed.
func (s *Stages) listed() bool {
	source := naming.Source{Topic: "orders", Handler: "billing", Delay: time.Second}
	return s.config.Naming.StageTopic(source) == groupOf(s.config.Naming, source)
}

// prefix is what the names of a live topic's stage topics begin with, by the default pattern.
func (s *Stages) prefix(topic string) string {
	a := s.config.Naming.StageTopic(naming.Source{Topic: topic, Handler: "a", Delay: time.Second})
	b := s.config.Naming.StageTopic(naming.Source{Topic: topic, Handler: "b", Delay: time.Second})
	same := 0
	for a[same] == b[same] {
		same++
	}
	return a[:same]
}

// groupOf names the consumer group that reads a stage topic. It differs for each handler, also if handlers share the
// topic. With the default patterns it is the name of the topic.
func groupOf(scheme naming.Scheme, source naming.Source) string {
	return naming.Scheme{Style: scheme.Style, MaxLength: scheme.MaxLength}.StageTopic(source)
}

// topics returns the live topics of all handlers, and all of their stage topics.
func (s *Stages) topics() (sources []string, known map[string]bool) {
	known = make(map[string]bool)
	for _, h := range s.snapshot() {
		sources = append(sources, h.topic)
		for _, t := range h.topics {
			known[t.topic] = true
		}
	}
	slices.Sort(sources)
	return slices.Compact(sources), known
}

func (s *Stages) abandoned(topic string, messages int) {
	eventStageAbandoned.Write(s.config.Logger, errAbandoned,
		logging.Fields{logging.StageTopic: topic, logging.Messages: messages})
}

var errAbandoned = errors.New("stage topic without a handler")

func (s *Stages) unseen(err error, where string) {
	if err != nil {
		logging.StageSearchFailed.Write(s.config.Logger, err, logging.Fields{"in": where})
	}
}
