package stages

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/lifecycle"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/poison"
)

// Config configures Stages. Publisher and Subscriber are required.
type Config struct {
	// Publisher takes messages to stage topics. It must confirm what it takes, because the source is acked after it, and be
	// no handler's: the router closes a handler's publisher when that handler stops. Where it is a poison.Initializer it
	// creates the stage topics. One that hides an Initializer is refused, see poison.WithInitializer.
	Publisher message.Publisher
	// Subscriber returns the subscriber for a stage topic, in a consumer group of its own where the broker has groups: in
	// the live topic's group, a stage that waits holds up its rebalance. A group that is new must begin with the oldest
	// message, as wmkafka's does and watermill-kafka's own does not: the first message of a stage comes before its group has
	// acknowledged any. It is called once for each stage of a handler, when the handler is added. What it returns is closed by
	// the router, or when the last of the stages that have it has ended; one that another handler has too, by the router alone.
	Subscriber func(topic, group string) (message.Subscriber, error)
	// Stages are what a message goes through, in this order. Default: Delays(5*time.Second, time.Minute, 10*time.Minute).
	Stages []Stage
	// Store keeps the messages that wait, in place of topics: each exactly as long as it should, in due order, on any
	// pub/sub. A relay publishes them to one re-entry topic of the handler, as long as the router of Plugin runs. Relays share
	// what is in the table, so services whose publishers lead to different brokers need Store.For. Who comes from topics
	// lists their stages as Retired, beside those that messages enter; who goes back to them waits until Store.Waiting has none,
	// and the re-entry topic is empty. Default: none, messages wait in the topic of their stage.
	Store *delay.Store
	// Naming names the stage topics. Default: PerHandler.
	Naming Naming
	// SharedTopics lets handlers have stage topics in common. It is for brokers where each consumer group sees every message
	// of a topic, as in Kafka: a handler passes by what waits for another. Anywhere else that would lose it.
	SharedTopics bool
	// Jitter is how much longer than its delay a message waits at the most, as a share of the delay: how much, is drawn by
	// lot for each message. Default: 0.1. A negative one means none.
	Jitter float64
	// MaxDelay is the longest wait that an error's retry-after gets. One that asks for more is set aside at once. Default: 24
	// hours.
	MaxDelay time.Duration
	// MaxHold is how long a stage topic's message is held without being acked. One that is due later is published to the end
	// of its topic again. It must be below RabbitMQ's consumer_timeout. Default: 15 minutes.
	MaxHold time.Duration
	// Classifier judges errors that no retry further in has judged. Default: marks and built-in knowledge.
	Classifier *classify.Classifier
	// Logger receives one Info line per message that goes to a stage, with its cause, and an Error line per stage that fails.
	// Payloads are never logged. Default: none, or in a spillway.Channel the router's.
	Logger watermill.LoggerAdapter
	// OnStage is told of each message that went to a stage. On a SQL source with a Store that is before the transaction commits,
	// and the message comes again where it does not.
	OnStage func(context.Context, Waiting)
	// OnReentry is told of each message that comes to its handler again, before it does.
	OnReentry func(context.Context, Reentry)
}

// Stage is a wait, after which a message is handled again.
type Stage struct {
	// Delay is how long a message waits at the least.
	Delay time.Duration
	// Concurrency is how many of the stage's messages are handled at the same time. 0 means as many as the subscriber
	// delivers: InFlight of a queue with wmamqp, of each partition with wmkafka, where 1 does not mean in order. It has no
	// effect with a Store, whose re-entry topic serves all stages.
	Concurrency int
	// Retired is a stage that no message enters any more, and whose topic is consumed until it is empty.
	Retired bool
}

// Delays are stages with these delays.
func Delays(delays ...time.Duration) []Stage {
	stages := make([]Stage, len(delays))
	for i, d := range delays {
		stages[i].Delay = d
	}
	return stages
}

// Waiting tells of a message that waits for its next attempt.
type Waiting struct {
	// ID is the message's.
	ID string
	// Handler and Topic are those that the message first came to.
	Handler, Topic string
	// Topic is where the message waits, or with a Store where it comes back.
	StageTopic string
	// Stage counts from 1.
	Stage int
	// Wait is how long the message waits, at the least and without what its stage is late.
	Wait    time.Duration
	Verdict classify.Verdict
	// Attempts counts the invocations of the handler in the delivery that failed just now, without those of stages before.
	Attempts int
}

// Reentry tells of a message that comes to its handler again.
type Reentry struct {
	// ID is the message's.
	ID string
	// Handler and Topic are those that the message first came to, and StageTopic is where it comes from.
	Handler, Topic, StageTopic string
	// Stage is where the message waited, or 0 where it did not, a redriven one for one.
	Stage int
	// Late is how long after it was due the message comes, by this process' clock. It is not known with a Store, and 0.
	Late time.Duration
}

func (c *Config) setDefaults() {
	if c.Stages == nil {
		c.Stages = Delays(5*time.Second, time.Minute, 10*time.Minute)
	}
	if c.Naming == nil {
		c.Naming = PerHandler
	}
	if c.Jitter == 0 {
		c.Jitter = 0.1
	}
	c.Jitter = max(c.Jitter, 0)
	if c.MaxDelay == 0 {
		c.MaxDelay = 24 * time.Hour
	}
	if c.MaxHold == 0 {
		c.MaxHold = 15 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

// minDelay keeps a delay from being meant in another unit, and a stage from spinning.
const minDelay = time.Millisecond

func (c *Config) validate() error {
	switch {
	case safecall.IsNil(c.Publisher):
		return errors.New("stages: Config.Publisher is nil: messages have no way into a stage")
	case poison.CheckInitializer(c.Publisher) != nil:
		return fmt.Errorf("stages: Config.Publisher: %w", poison.CheckInitializer(c.Publisher))
	case c.Subscriber == nil:
		return errors.New("stages: Config.Subscriber is nil: messages would wait in their stages for good")
	case c.Jitter > 1:
		return fmt.Errorf("stages: Config.Jitter is %v: it is a share of the delay, at most 1", c.Jitter)
	case c.MaxDelay < 0 || c.MaxHold < 0:
		return fmt.Errorf("stages: Config.MaxDelay (%s) and MaxHold (%s) must not be negative", c.MaxDelay, c.MaxHold)
	case c.MaxHold < minDelay:
		return fmt.Errorf("stages: Config.MaxHold is %s: messages would go round without end; it must be %s or more", c.MaxHold, minDelay)
	}
	active := false
	for i, stage := range c.Stages {
		if stage.Delay < minDelay {
			return fmt.Errorf("stages: Config.Stages[%d].Delay is %s: it must be %s or more; retry in the handler's place with RetryConfig", i, stage.Delay, minDelay)
		}
		if stage.Delay > c.MaxDelay {
			return fmt.Errorf("stages: Config.Stages[%d].Delay is %s, and MaxDelay %s: it must not be longer", i, stage.Delay, c.MaxDelay)
		}
		if stage.Concurrency < 0 {
			return fmt.Errorf("stages: Config.Stages[%d].Concurrency is %d", i, stage.Concurrency)
		}
		active = active || !stage.Retired
	}
	if !active {
		return errors.New("stages: Config.Stages has no stage that is not Retired: a message would have nowhere to wait")
	}
	return c.Naming.probe(c.active())
}

// active are the stages that messages enter.
func (c *Config) active() (active []Stage) {
	for _, stage := range c.Stages {
		if !stage.Retired {
			active = append(active, stage)
		}
	}
	return active
}

// Stages have messages that failed for the moment handled again later, by the same handler, while those behind them go on.
// A handler is added with AddHandler, AddConsumerHandler or Extend, and its messages go through Middleware. It is safe for
// concurrent use by any number of handlers and routers.
type Stages struct {
	queue  *poison.Queue
	config Config
	active []Stage
	knows  func(*chain.Call) bool
	relay  *delay.Relay
	life   *lifecycle.Lifecycle // of the relay
	end    context.CancelFunc
	ended  sync.WaitGroup

	guard    *outage.Guard // of the publisher or the store
	refusals refusals
	passed   atomic.Bool // a message has met the middleware
	plugged  atomic.Bool // Plugin was given to a router

	mu       sync.RWMutex
	handlers map[string]*handler // by name
	shared   []*sharedSubscriber
}

// New returns Stages, or an error that names the field of config with which messages could be lost. With a Store it
// creates the store's table where there is none.
//
// With queue a handler's messages are dead-lettered when no stage is left. It tells where a message came from, and masks the texts
// of errors as in a letter (MaskText). Metadata stay as they are, since the handler needs them.
func New(queue *poison.Queue, config Config) (*Stages, error) {
	if queue == nil {
		return nil, errors.New("stages: New: the queue is nil: give the poison.Queue of the handlers")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Stages{queue: queue, config: config, active: config.active(), refusals: newRefusals(), handlers: make(map[string]*handler)}
	s.knows = func(c *chain.Call) bool { return s.handlerOf(c) != nil }
	s.guard = outage.New(outage.Config{Name: "stages: the " + config.place(), Lost: outage.Lost, Logger: config.Logger})
	if config.Store != nil {
		if config.MaxDelay > delay.MaxDelay {
			return nil, fmt.Errorf("stages: Config.MaxDelay is %s: a Store keeps no message for more than %s", config.MaxDelay, delay.MaxDelay)
		}
		relay, err := delay.NewRelay(delay.RelayConfig{Store: config.Store, Publisher: config.Publisher, GiveUp: s.giveUp, Logger: config.Logger})
		if err != nil {
			return nil, fmt.Errorf("stages: Config.Store: %w", err)
		}
		s.relay, s.life = relay, lifecycle.New(s.begin, func() { s.end(); s.ended.Wait() })
	}
	return s, nil
}

// place names where messages wait.
func (c *Config) place() string {
	if c.Store != nil {
		return "delay store"
	}
	return "publisher"
}

// Total is how long a message can be on its way through all stages, those waits aside that an error asked for.
func (s *Stages) Total() (total time.Duration) {
	for _, stage := range s.active {
		total += s.longest(stage.Delay)
	}
	return total
}

// longest is a delay with all of its jitter.
func (s *Stages) longest(delay time.Duration) time.Duration {
	return delay + time.Duration(s.config.Jitter*float64(delay))
}
