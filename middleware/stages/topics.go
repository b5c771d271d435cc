package stages

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// handler is a handler with its stages.
type handler struct {
	stages      *Stages
	name, topic string
	extends     *message.Router // of a handler that was there already
	waits       []*stageTopic   // of which the active come first
	byNumber    []*stageTopic   // the topic of each active stage; with a Store the same for all
}

// stageTopic is a topic that messages wait in, or with a Store re-enter from.
type stageTopic struct {
	of          *handler
	topic       string
	suffix      string // of the stage's name in the router and of its group
	delay       time.Duration
	concurrency int
	numbers     []int         // the stages that wait here, none where they are retired
	shared      bool          // with other handlers
	holds       time.Duration // how long a message is held at the most
	subscribed  *latch
	ready       atomic.Bool // the topic is there
	outlasts    sync.Once   // an ack deadline
}

// plan works out the topics of a handler's stages.
func (s *Stages) plan(name, topic string) (*handler, error) {
	h := &handler{stages: s, name: name, topic: topic}
	if s.config.Store != nil {
		wait, err := h.wait(Stage{}, 0)
		if err != nil {
			return nil, err
		}
		for n := range s.active {
			wait.numbers = append(wait.numbers, n+1)
			h.byNumber = append(h.byNumber, wait)
		}
	} else {
		for i, stage := range s.active {
			wait, err := h.wait(stage, i+1)
			if err != nil {
				return nil, err
			}
			h.byNumber = append(h.byNumber, wait)
		}
	}
	for _, stage := range s.config.Stages {
		if stage.Retired {
			if _, err := h.wait(stage, 0); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

// wait is the topic of a stage, which may be that of an earlier one.
func (h *handler) wait(stage Stage, number int) (*stageTopic, error) {
	source := Source{Topic: h.topic, Handler: h.name, Delay: stage.Delay}
	naming := h.stages.config.Naming
	topic, err := naming.topic(source)
	if err != nil {
		return nil, err
	}
	for _, wait := range h.waits {
		if wait.topic == topic {
			if number > 0 && wait.delay != stage.Delay {
				return nil, sameName(topic, wait.delay, stage.Delay)
			}
			if number > 0 {
				wait.numbers = append(wait.numbers, number)
			}
			return wait, nil
		}
	}
	wait := &stageTopic{
		of: h, subscribed: newLatch(), topic: topic, suffix: stageSuffix(stage.Delay), delay: stage.Delay, concurrency: stage.Concurrency, shared: naming.shared(source, topic),
	}
	if number > 0 {
		wait.numbers = []int{number}
	}
	wait.holds = evenly(h.stages.longest(stage.Delay), h.stages.config.MaxHold)
	if wait.holds < h.stages.longest(stage.Delay) {
		h.stages.config.Logger.Info("A stage is longer than a message is held; its messages go round", watermill.LogFields{
			"handler": h.name, "stage_topic": topic, "delay": stage.Delay, "held": wait.holds,
		})
	}
	h.waits = append(h.waits, wait)
	return wait, nil
}

// evenly parts a wait into equal ones, none longer than most. All of a topic's messages are held for the same time, so one
// that goes round waits behind later ones for no more than the jitter's amplitude.
func evenly(wait, most time.Duration) time.Duration {
	if wait == 0 { // a re-entry topic holds nothing
		return 0
	}
	rounds := (wait-1)/most + 1
	return (wait-1)/rounds + 1
}

// group is the consumer group of the topic: this handler's own, whoever else has a handler of this name on another topic.
func (t *stageTopic) group() string { return t.of.topic + "." + t.of.name + t.suffix }

// register remembers a handler. One of the same name on the same topic is another router's of this process.
// It returns what forgets it again.
func (s *Stages) register(h *handler) (forget func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.handlers[h.name]; other != nil && other.topic != h.topic {
		return nil, fmt.Errorf("stages: add handler %q on topic %q: these Stages have one of this name on topic %q; handlers are told by their names", h.name, h.topic, other.topic)
	}
	for _, other := range s.handlers {
		for _, wait := range h.waits {
			if other.name != h.name && other.has(wait.topic) && !s.config.SharedTopics {
				return nil, fmt.Errorf("stages: add handler %q on topic %q: handler %q on topic %q has the same stage topic %q, so one would take the "+
					"other's messages; name it after the handler too, as PerHandler does, or set SharedTopics where every consumer group sees every message",
					h.name, h.topic, other.name, other.topic, wait.topic)
			}
		}
	}
	if other := s.handlers[h.name]; other != nil { // a topic that has its handler already keeps what comes
		for _, wait := range h.waits {
			if i := slices.IndexFunc(other.waits, func(w *stageTopic) bool { return w.topic == wait.topic }); i >= 0 {
				wait.subscribed = other.waits[i].subscribed
			}
		}
	}
	before := s.handlers[h.name]
	s.handlers[h.name] = h
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.handlers[h.name] = before; before == nil {
			delete(s.handlers, h.name)
		}
	}, nil
}

func (h *handler) has(topic string) bool {
	return slices.ContainsFunc(h.waits, func(w *stageTopic) bool { return w.topic == topic })
}
