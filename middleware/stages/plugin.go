package stages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/decorated"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/poison"
)

// Plugin is the router's plugin that looks for messages in stages which no handler here has any more, and logs an error
// that names topic and count: in topics where the publisher is a poison.Lister, as those of wmkafka and wmsql are, and Naming
// is PerHandler; and in a Store. With a Store it also moves due messages, as long as handlers run.
func (s *Stages) Plugin(router *message.Router) error {
	if s == nil {
		return nil
	}
	if router == nil {
		return errors.New("stages: Stages.Plugin: the router is nil")
	}
	s.mu.RLock()
	for _, h := range s.handlers {
		if h.extends == router {
			if err := h.unlike(); err != nil {
				s.mu.RUnlock()
				return err
			}
		}
	}
	s.mu.RUnlock()
	if err := s.initialize(); err != nil {
		return err
	}
	s.warn()
	s.plugged.Store(true)
	if s.relay != nil {
		return s.life.Plugin(router)
	}
	return nil
}

// initialize makes the stage topics before a handler runs that could send messages there.
func (s *Stages) initialize() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.handlers {
		for _, wait := range h.waits {
			if err := wait.initialize(); err != nil {
				return err
			}
		}
	}
	return nil
}

// initialize makes the topic, once.
func (t *stageTopic) initialize() error {
	if t.ready.Load() {
		return nil
	}
	if err := poison.InitializeFor(t.of.stages.config.Publisher, t.of.topic, t.topic); err != nil {
		return fmt.Errorf("stages: stage topic %q of handler %q cannot be used: %w", t.topic, t.of.name, err)
	}
	t.ready.Store(true)
	return nil
}

// begin runs the relay, when the handlers have subscribed that it publishes for: some pub/subs keep nothing for others.
func (s *Stages) begin() error {
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	s.ended.Go(func() {
		s.mu.RLock()
		handlers := slices.Collect(maps.Values(s.handlers))
		s.mu.RUnlock()
		ready, cancel := context.WithTimeout(ctx, maxSubscribing)
		defer cancel()
		for _, h := range handlers {
			for _, wait := range h.waits {
				wait.subscribed.await(ready)
			}
		}
		_ = s.relay.Run(ctx) // it ends with ctx
	})
	return nil
}

// giveUp sets a message aside that is too large to enter again.
func (s *Stages) giveUp(ctx context.Context, topic string, msg *message.Message, refusal error) error {
	s.mu.RLock()
	of := s.handlers[poison.Read(msg).Origin.Handler] // several may share the topic
	for _, h := range s.handlers {
		if (of == nil || !of.has(topic)) && h.has(topic) { // QueueConfig.Origin may tell another name
			of = h
		}
	}
	s.mu.RUnlock()
	if of == nil || !of.has(topic) {
		return refusal
	}
	ctx = chain.Within(ctx, of.name, of.topic)
	msg.SetContext(chain.WithReentry(ctx, &chain.Reentry{Handler: of.name}))
	return s.queue.Place(msg, refusal)
}

// lookTimeout bounds what a look around holds up the start.
const lookTimeout = 10 * time.Second

// warn tells of messages that wait where nobody waits for them.
func (s *Stages) warn() {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	sources, known := s.topics()
	if s.config.Store != nil {
		kept, err := s.config.Store.Waiting(ctx)
		s.unseen(err, "the delay store")
		for _, k := range kept {
			if !known[k.Topic] {
				s.abandoned(k.Topic, k.Messages)
			}
		}
	}
	lister, ok := decorated.As[poison.Lister](s.config.Publisher)
	if !ok || !s.listed() {
		return
	}
	for _, source := range sources {
		var waiting map[string]int
		err := safecall.Call("poison.Lister", func() (err error) {
			waiting, err = lister.ListWaiting(ctx, source+".")
			return err
		})
		s.unseen(err, source)
		for _, topic := range slices.Sorted(maps.Keys(waiting)) {
			if !known[topic] && waiting[topic] > 0 && strings.Contains(strings.TrimPrefix(topic, source), stageSuffix(0)) {
				s.abandoned(topic, waiting[topic])
			}
		}
	}
}

// listed tells whether stage topics are named as their groups, by which a Lister knows what was consumed.
func (s *Stages) listed() bool {
	source := Source{Topic: "orders", Handler: "billing", Delay: time.Second}
	named, err := s.config.Naming.topic(source)
	return err == nil && named == PerHandler(source)
}

// topics are those that handlers are subscribed to, and all of their stages'.
func (s *Stages) topics() (sources []string, known map[string]bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	known = make(map[string]bool)
	for _, h := range s.handlers {
		sources = append(sources, h.topic)
		for _, wait := range h.waits {
			known[wait.topic] = true
		}
	}
	slices.Sort(sources)
	return slices.Compact(sources), known
}

func (s *Stages) abandoned(topic string, messages int) {
	s.config.Logger.Error("Messages wait in a stage topic that no handler of this process consumes; add their handler, list a removed delay as Retired, "+
		"or see that another service has them", errAbandoned, watermill.LogFields{"stage_topic": topic, "messages": messages})
}

var errAbandoned = errors.New("stage topic without a handler")

func (s *Stages) unseen(err error, where string) {
	if err != nil {
		s.config.Logger.Error("It cannot be seen whether messages wait in stages that are no more", err, watermill.LogFields{"in": where})
	}
}

// Entry is the topic at which a dead letter of a handler that was added here re-enters at its first stage, apart from live
// traffic and at once, or "" for any other letter. It is for package redrive.
func (s *Stages) Entry(letter poison.Letter) string {
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
