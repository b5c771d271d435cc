package stages

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/naming"
)

// lookTimeout bounds how long the search for abandoned messages delays the start.
const lookTimeout = 10 * time.Second

// warnOfAbandoned logs stage topics with messages that no handler of this process consumes.
func (s *Stages) warnOfAbandoned() {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	sources, known := s.topics()
	if s.config.Store != nil {
		kept, err := s.config.Store.Inside().Waiting(ctx)
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
			waiting, err = publisher.ListWaiting(ctx, s.config.Naming.Inside().StagePrefix(source))
			return err
		})
		s.unseen(err, source)
		for _, topic := range slices.Sorted(maps.Keys(waiting)) {
			if !known[topic] && waiting[topic] > 0 && s.config.Naming.Inside().IsStage(topic) {
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
	return s.config.Naming.StageTopic(source) == s.config.Naming.Inside().StageGroup(source)
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
	logging.StageAbandoned.Write(s.config.Logger, errAbandoned,
		logging.Fields{logging.StageTopic: topic, logging.Messages: messages})
}

var errAbandoned = errors.New("stage topic without a handler")

func (s *Stages) unseen(err error, where string) {
	if err != nil {
		logging.StageSearchFailed.Write(s.config.Logger, err, logging.Fields{"in": where})
	}
}
