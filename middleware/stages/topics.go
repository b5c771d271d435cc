package stages

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/naming"
)

// handler is a handler with its stages.
type handler struct {
	stages      *Stages
	name, topic string
	extends     *message.Router // that had the handler already
	topics      []*stageTopic   // those of active stages first
	byNumber    []*stageTopic   // the topic of each active stage; with a Store the same for all
}

// inRouter returns the name of the router's handler that gets due messages.
func (h *handler) inRouter() string {
	if h.extends == nil {
		return h.name
	}
	return h.name + extendedSuffix
}

// extendedSuffix is what the name of the router's handler for the stages of an extended handler ends with.
const extendedSuffix = ".retry"

// stageTopic is a topic that messages wait in, or with a Store come back from.
type stageTopic struct {
	of         *handler
	topic      string
	group      string // the consumer group
	delay      time.Duration
	numbers    []int                           // of the stages that wait here; none for a retired stage
	longest    time.Duration                   // that a message waits, with all of its jitter
	redelivery atomic.Pointer[hold.Redelivery] // of the subscriber; nil before it is known
	subscribed *latch
	ready      atomic.Bool // the topic exists
	warned     sync.Once   // that messages are late here
}

// plan works out the topics of a handler's stages.
func (s *Stages) plan(name, topic string) (*handler, error) {
	h := &handler{stages: s, name: name, topic: topic}
	if s.config.Store != nil {
		reentry, err := h.addTopic(Stage{}, 0)
		if err != nil {
			return nil, err
		}
		for n := range s.active {
			reentry.numbers = append(reentry.numbers, n+1)
			h.byNumber = append(h.byNumber, reentry)
		}
	} else {
		for i, stage := range s.active {
			t, err := h.addTopic(stage, i+1)
			if err != nil {
				return nil, err
			}
			h.byNumber = append(h.byNumber, t)
		}
	}
	for _, stage := range s.config.Stages {
		if stage.Retired {
			if _, err := h.addTopic(stage, 0); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

// addTopic returns the topic of a stage, which may be that of an earlier stage. Retired stages have the number 0.
func (h *handler) addTopic(stage Stage, number int) (*stageTopic, error) {
	source := naming.Source{Topic: h.topic, Handler: h.name, Delay: stage.Delay}
	config := &h.stages.config
	topic, err := config.topicOf(source)
	if err != nil {
		return nil, err
	}
	if t := h.topicNamed(topic); t != nil {
		if number > 0 && t.delay != stage.Delay {
			return nil, sameName(topic, t.delay, stage.Delay)
		}
		if number > 0 {
			t.numbers = append(t.numbers, number)
		}
		return t, nil
	}
	t := &stageTopic{
		of: h, topic: topic, group: groupOf(config.Naming, source), delay: stage.Delay,
		longest: h.stages.longest(stage.Delay), subscribed: newLatch(),
	}
	if number > 0 {
		t.numbers = []int{number}
	}
	h.topics = append(h.topics, t)
	return t, nil
}

// maxHold is how long a message of a stage topic is held at most without an ack. It is half of RabbitMQ's
// consumer_timeout.
const maxHold = 15 * time.Minute

// maxHold returns how long a message of the topic may be held in all.
func (t *stageTopic) maxHold() time.Duration {
	return min(t.redelivery.Load().MaxHold(0), maxHold)
}

// holds returns how long a message of the topic waits before it goes round.
func (t *stageTopic) holds() time.Duration { return evenly(t.longest, t.maxHold()) }

// subscribedWith notes the subscriber of the topic.
func (t *stageTopic) subscribedWith(sub *sharedSubscriber) {
	t.redelivery.Store(sub.redelivery)
	config := &t.of.stages.config
	fields := logging.Fields{logging.Handler: t.of.name, logging.StageTopic: t.topic, "delay": t.delay,
		logging.Held: t.maxHold(), "redelivery_time": sub.redelivery.After}
	if t.holds() < t.longest {
		fields[logging.Held] = t.holds()
		eventStageRounds.Write(config.Logger, nil, fields)
	}
}

// evenly divides a wait into equal parts of at most most. All messages of a topic are then held equally long, so one
// that goes round waits behind later ones for no longer than the jitter.
func evenly(wait, most time.Duration) time.Duration {
	if wait == 0 { // a re-entry topic holds nothing
		return 0
	}
	rounds := (wait-1)/most + 1
	return (wait-1)/rounds + 1
}

// topicNamed returns the handler's stage topic of this name, or nil.
func (h *handler) topicNamed(topic string) *stageTopic {
	for _, t := range h.topics {
		if t.topic == topic {
			return t
		}
	}
	return nil
}

// register adds a handler to those that Stages knows, and returns a function that removes it. If Stages knows the name
// on the same topic, the handler is of another router in this process.
func (s *Stages) register(h *handler) (forget func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.handlers[h.name]
	if before != nil && before.topic != h.topic {
		return nil, fmt.Errorf("topic %q: a handler of this name is on topic %q; handler names must be unique", h.topic,
			before.topic)
	}
	for _, other := range s.handlers {
		for _, t := range h.topics {
			if other.name != h.name && other.topicNamed(t.topic) != nil {
				return nil, fmt.Errorf("topic %q: handler %q on topic %q has the same stage topic %q, so that one would take the "+
					"other's messages; choose another name for one of the handlers",
					h.topic, other.name, other.topic, t.topic)
			}
		}
	}
	if before != nil { // its stages have subscribed, or will: their messages are kept for this handler too
		for _, t := range h.topics {
			if other := before.topicNamed(t.topic); other != nil {
				t.subscribed = other.subscribed
			}
		}
	}
	s.handlers[h.name] = h
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.handlers[h.name] = before; before == nil {
			delete(s.handlers, h.name)
		}
	}, nil
}

// snapshot returns the handlers that Stages knows.
func (s *Stages) snapshot() []*handler {
	s.mu.RLock()
	defer s.mu.RUnlock()
	handlers := make([]*handler, 0, len(s.handlers))
	for _, h := range s.handlers {
		handlers = append(handlers, h)
	}
	return handlers
}

// checkNames finds at construction what would go wrong for every handler.
func (c *Config) checkNames() error {
	if err := c.Naming.Validate(); err != nil {
		return fmt.Errorf("stages: Config.Naming: %w", err)
	}
	for _, pattern := range []string{c.Naming.Stage, c.Naming.Reentry} {
		if pattern != "" && !(strings.Contains(pattern, "{topic}") && strings.Contains(pattern, "{handler}")) {
			return fmt.Errorf("stages: Config.Naming names stage topics %q: handlers would take each other's messages; "+
				"put {topic} and {handler} into Naming.Stage and Naming.Reentry", pattern)
		}
	}
	named := map[string]time.Duration{}
	for _, stage := range c.active() {
		topic, err := c.topicOf(naming.Source{Topic: "orders", Handler: "billing", Delay: stage.Delay})
		if err != nil {
			return fmt.Errorf("stages: %w", err)
		}
		if other, ok := named[topic]; ok && other != stage.Delay {
			return fmt.Errorf("stages: %w", sameName(topic, other, stage.Delay))
		}
		named[topic] = stage.Delay
	}
	return nil
}

func sameName(topic string, delay, other time.Duration) error {
	return fmt.Errorf("Config.Naming names %q for delays of %s and %s: in one topic a message would wait behind one "+
		"that is due later; give each delay a name of its own", topic, delay, other)
}

// topicOf names the topic of a stage.
func (c *Config) topicOf(source naming.Source) (string, error) {
	topic := c.Naming.StageTopic(source)
	if topic == source.Topic {
		return "", fmt.Errorf("Config.Naming names %q for the stage of %s of handler %q on topic %q: it must be another topic",
			topic, source.Delay, source.Handler, source.Topic)
	}
	return topic, nil
}

// nameOf names a publisher or subscriber as the router does.
func nameOf(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return strings.TrimLeft(fmt.Sprintf("%T", v), "*")
}

// sharedSubscriber is a subscriber that Config.Subscriber returned, once or for several stages.
type sharedSubscriber struct {
	message.Subscriber
	redelivery *hold.Redelivery
	users      int  // stages that have it; guarded by Stages.mu
	live       bool // a handler has it too: only the router closes it
	once       sync.Once
	err        error
}

// Close closes the subscriber, once.
func (l *sharedSubscriber) Close() error {
	l.once.Do(func() { l.err = l.Subscriber.Close() })
	return l.err
}

// subscribers calls Config.Subscriber for each stage of h. After an error it closes the subscribers that it got for h
// alone.
func (s *Stages) subscribers(router *message.Router, h *handler,
	live message.Subscriber) (waiters []*waiter, err error) {
	for _, t := range h.topics {
		var sub message.Subscriber
		err := safecall.Call("stages.Subscriber", func() (err error) {
			sub, err = s.config.Subscriber(t.topic, t.group)
			return err
		})
		if err == nil && safecall.IsNil(sub) {
			err = errors.New("it is nil")
		}
		if err != nil {
			err = fmt.Errorf("Config.Subscriber for stage topic %q: %w", t.topic, err)
			for _, w := range waiters {
				err = errors.Join(err, s.closeUnused(w.sub))
			}
			return nil, err
		}
		shared := s.share(sub, same(sub, live) || hasSubscriber(router, sub))
		t.subscribedWith(shared)
		waiters = append(waiters, newWaiter(t, shared))
	}
	return waiters, nil
}

func (s *Stages) share(sub message.Subscriber, live bool) *sharedSubscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.shared, func(l *sharedSubscriber) bool { return same(l.Subscriber, sub) })
	if i < 0 {
		i = len(s.shared)
		s.shared = append(s.shared, &sharedSubscriber{Subscriber: sub, redelivery: hold.RedeliveryOf(decorated.Subscriptions(sub))})
	}
	l := s.shared[i]
	l.users++
	l.live = l.live || live
	return l
}

// same reports whether two subscribers are one. Those that cannot be compared are not.
func same(a, b message.Subscriber) bool {
	if a == nil || b == nil || !reflect.ValueOf(a).Comparable() || !reflect.ValueOf(b).Comparable() {
		return false
	}
	return a == b
}

// release reports whether the stage that ends was the last one with the subscriber.
func (s *Stages) release(l *sharedSubscriber) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	if last = l.users == 0; last {
		s.shared = slices.DeleteFunc(s.shared, func(other *sharedSubscriber) bool { return other == l })
	}
	return last
}

// closeUnused closes the subscriber of a stage that has ended, if no other stage has it. Watermill's router does not
// close the subscriber of a handler whose context ended before the router closed.
func (s *Stages) closeUnused(l *sharedSubscriber) error {
	if !s.release(l) || l.live {
		return nil
	}
	return safecall.Call("subscriber", l.Close)
}
