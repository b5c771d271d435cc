package stages

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// What other packages of Spillway need of this part, in one value for each of them.
type (
	link   = chain.Link
	owned  = outage.Owned
	handle = hidden.Handle[*inner]
)

// Stages gives failed messages to their handlers again later, while the messages behind them go on. Add a handler with
// AddHandler, AddConsumerHandler or Extend, and give it Middleware. Stages is safe for concurrent use by any number of
// handlers and routers.
type Stages struct {
	link
	owned
	handle
	queue     *poison.Queue
	config    Config
	publisher packing // Config.Publisher
	active    []Stage
	relay     delays.Relay         // of a Store
	life      *lifecycle.Lifecycle // of the relay

	sink     *outage.Dependency // of the publisher or the store
	refusals refusals
	copies   copies
	notice   destination.Notice
	passed   atomic.Bool // a message has met the middleware
	plugged  atomic.Bool // Plugin was given to a router

	mu       sync.RWMutex
	handlers map[string]*handler // by name
	shared   []*sharedSubscriber
}

// New returns Stages, or an error that names the field of config with which messages could be lost.
//
// If no stage is left, queue dead-letters the message. Its Origin says where a message came from, and its Privacy
// masks the texts of errors in the metadata of waiting messages. Other metadata stay as they are, since the handler
// needs them.
func New(queue *poison.Queue, config Config) (*Stages, error) {
	if queue == nil {
		return nil, errors.New("stages: New: the queue is nil: give the poison.Queue of the handlers")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Stages{queue: queue, config: config, active: config.active(),
		refusals: newRefusals(), handlers: make(map[string]*handler)}
	s.publisher = packing{config.Publisher}
	s.link, s.handle = chain.LinkOf(s.step), hidden.By((*inner)(s))
	watched := "stages: the publisher"
	if config.Store != nil {
		watched = "stages: the delay store"
		s.relay = delays.In(config.Store).Relay(s.publisher, s.giveUp,
			observe.Shared{Classifier: hidden.Of(s.queue).Classifier(), Logger: config.Logger})
		s.life = lifecycle.Run(s.runRelay)
	}
	s.sink = outage.New(outage.Config{Name: watched, Lost: outage.Lost, Nacked: outage.Nacked, Logger: config.Logger})
	s.owned = outage.OwnedBy(s.sink)
	return s, nil
}

// longest returns a delay with all of its jitter.
func (s *Stages) longest(delay time.Duration) time.Duration {
	return delay + time.Duration(s.config.Jitter*float64(delay))
}

func (s *Stages) jittered(delay time.Duration) time.Duration {
	return delay + time.Duration(rand.Float64()*s.config.Jitter*float64(delay))
}

// next returns the number of the stage after the given one, and the wait there. It reports false if no stage is left,
// or if the error asks for a longer wait than the longest. A retry-after is never cut short: with topics, next skips
// stages with a shorter delay. If the last stage is too short as well, the message goes round in it.
func (s *Stages) next(after int, retryAfter time.Duration) (number int, wait time.Duration, ok bool) {
	if after >= len(s.active) || retryAfter > s.config.longest() {
		return 0, 0, false
	}
	number = max(after, 0) + 1
	if s.config.Store == nil {
		for number < len(s.active) && s.active[number-1].Delay < retryAfter {
			number++
		}
	}
	return number, max(s.jittered(s.active[number-1].Delay), retryAfter), true
}

// nearest returns the stage with this number, or the last stage if the configuration has fewer now.
func (s *Stages) nearest(number int) int { return min(max(number, 0), len(s.active)) }

// inner is Stages with the methods that only Spillway's own packages call.
type inner Stages

// Store returns the store of the Config. It is nil if messages wait in topics.
func (in *inner) Store() delays.Store {
	if in == nil {
		return nil
	}
	return delays.In(in.config.Store)
}

// HandlerOf returns the handler of a topic that waiting messages come back from, and the handler's live topic. It
// reports false if no handler of this process has the topic. Of handlers that share the topic, it returns the one
// whose name comes first.
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

// Total returns how long a message can wait in all stages together, without longer waits that errors ask for.
func (in *inner) Total() (total time.Duration) {
	for _, stage := range in.active {
		total += (*Stages)(in).longest(stage.Delay)
	}
	return total
}
