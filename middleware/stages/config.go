package stages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
)

// Config configures Stages. Publisher and Subscriber are required.
type Config struct {
	// Publisher publishes messages to stage topics. A message is acked after Publish returned, so Publish must return
	// after the broker confirmed. It must not be a handler's publisher, which the router closes when that handler
	// stops. If it is a poison.Initializer, it creates the stage topics. A wrapper that hides an Initializer is an
	// error: see poison.WithInitializer.
	Publisher message.Publisher
	// Subscriber returns the subscriber for a stage topic. It is called once for each stage of a handler, when the
	// handler is added.
	//
	//   - If the broker has consumer groups, subscribe in group. A waiting stage would hold up the rebalances of the
	//     live topic's group.
	//   - A new group must begin with the oldest message, as wmkafka's does and that of watermill-kafka does not.
	//   - A broker must not deliver a message again while it is held. A subscriber can say after which time its broker
	//     does, with a method RedeliveryTime() time.Duration, where 0 means never. Spillway's own subscribers have the
	//     method. Those of Watermill for NATS, Redis Streams, Kafka, RabbitMQ, SQL and Go channels are known.
	//   - The router closes the subscriber, or the last stage that uses it when it ends. If a handler uses it too, only
	//     the router closes it.
	Subscriber func(topic, group string) (message.Subscriber, error)
	// Stages are the waits of a message that fails again and again, in this order. Default: Delays(5*time.Second,
	// time.Minute, 10*time.Minute).
	Stages []Stage
	// Store, such as delay.NewStore, keeps waiting messages in a database instead of topics. Every message then waits
	// for exactly its time, on any pub/sub. While the router runs, a relay publishes due messages to one re-entry topic
	// of each handler, for which Publisher and Subscriber are required too. Default: none, messages wait in stage
	// topics.
	//
	//   - Services that share the table and publish to different brokers give delay.NewStore different services.
	//   - To move from stage topics to a Store, list the old stages as Retired, beside the active ones.
	//   - To move back, wait until the table spillway_delayed has no row of the service and the re-entry topic is
	//     empty.
	Store Store
	// Jitter is the greatest random addition to a wait, as a share of the stage's delay. Default: 0.1. A negative value
	// means none.
	Jitter float64
	// Hooks are called as messages go to stages and come back. Default: none.
	Hooks Hooks
	// Naming names the stage topics. Patterns of stages need {topic} and {handler}: each handler has topics of its own.
	// Stages of a handler with equal names share a topic, and must have the same delay. Default:
	// <topic>.<handler>.retry.<delay>, as package naming says.
	Naming naming.Scheme
	// Shared: Classifier judges errors that no Retry has judged. Logger receives one Info line per message that goes to
	// a stage, with its cause, and an Error line per stage that fails. Tracer follows each publishing to a stage.
	observe.Shared
}

// Store keeps messages in a database until they are due. It is a *delay.Store.
type Store interface{ delays.Keeper }

// Hooks are called in the goroutine of the message, and must be quick. A panic of a hook is logged and changes nothing.
type Hooks struct {
	// OnStage is called after a message went to a stage. With a Store and a SQL source, it is called before the
	// transaction commits: if the commit fails, the message comes again.
	OnStage func(context.Context, Waiting)
	// OnReentry is called before a message that waited is handled again.
	OnReentry func(context.Context, Reentry)
}

// Stage is a wait, after which a message is handled again.
type Stage struct {
	// Delay is how long a message waits at least. An error's retry-after is honoured up to 24 hours, or up to the
	// longest Delay if that is longer. A message whose error asks for more is dead-lettered at once.
	Delay time.Duration
	// Retired means that no message enters the stage any more. Its topic is consumed until you remove the Stage.
	Retired bool
}

// Delays returns stages with these delays.
func Delays(delays ...time.Duration) []Stage {
	stages := make([]Stage, len(delays))
	for i, d := range delays {
		stages[i].Delay = d
	}
	return stages
}

// Waiting is a message that waits for its next attempt.
type Waiting struct {
	// ID is the message's.
	ID string
	// Handler and Topic are the handler that failed and the live topic of the message.
	Handler, Topic string
	// StageTopic is the topic that the message waits in, or with a Store comes back from.
	StageTopic string
	// Stage is the number of the stage. The first is 1.
	Stage int
	// Wait is how long the message waits at least.
	Wait    time.Duration
	Verdict classify.Verdict
	// Attempts counts the calls of the handler since the message was delivered last, without those before earlier
	// stages.
	Attempts int
}

// Reentry is a message that comes to its handler again.
type Reentry struct {
	// ID is the message's.
	ID string
	// Handler and Topic are the handler and the live topic of the message. StageTopic is the topic that it comes from.
	Handler, Topic, StageTopic string
	// Stage is the number of the stage that the message waited in. It is 0 for a message that did not wait, such as a
	// redriven one.
	Stage int
	// Late is how long ago the message was due, by this process's clock. The process that failed wrote the time, by its
	// clock.
	Late time.Duration
}

func (c *Config) setDefaults() {
	if c.Stages == nil {
		c.Stages = Delays(5*time.Second, time.Minute, 10*time.Minute)
	}
	if c.Jitter == 0 {
		c.Jitter = 0.1
	}
	c.Jitter = max(c.Jitter, 0)
	if safecall.IsNil(c.Store) {
		c.Store = nil
	}
	c.Logger = logging.Wrap(c.Logger, nil)
}

// minDelay catches a delay in a wrong unit, and keeps a stage from spinning.
const minDelay = time.Millisecond

func (c *Config) validate() error {
	switch {
	case safecall.IsNil(c.Publisher):
		return errors.New("stages: Config.Publisher is nil: no message could go to a stage; give a publisher of its own")
	case destination.Check(c.Publisher) != nil:
		return fmt.Errorf("stages: Config.Publisher: %w", destination.Check(c.Publisher))
	case destination.CheckKeeps(c.Publisher) != nil:
		return fmt.Errorf("stages: Config.Publisher: %w", destination.CheckKeeps(c.Publisher))
	case !chain.WritesNames():
		return errors.New("stages: this version of Watermill keeps the name of a message's handler in another way, so a " +
			"message out of a stage would look like another handler's: keep the version of Watermill before")
	case c.Subscriber == nil:
		return errors.New("stages: Config.Subscriber is nil: messages would wait in their stages for good; return a " +
			"subscriber for each stage topic")
	case c.Jitter > 1:
		return fmt.Errorf("stages: Config.Jitter is %v: it is a share of the delay and must be at most 1", c.Jitter)
	}
	for i, stage := range c.Stages {
		if stage.Delay < minDelay {
			return fmt.Errorf("stages: Config.Stages[%d].Delay is %s: it must be at least %s; for shorter waits use "+
				"middleware.RetryConfig", i, stage.Delay, minDelay)
		}
		if stage.Delay > delays.MaxDelay {
			return fmt.Errorf("stages: Config.Stages[%d].Delay is %s: it must be at most %s", i, stage.Delay,
				delays.MaxDelay)
		}
	}
	if len(c.active()) == 0 {
		return errors.New("stages: Config.Stages has no stage that is not Retired: a failing message could not wait " +
			"anywhere; add one")
	}
	return c.checkNames()
}

// maxRetryAfter is the longest retry-after that is honoured, if no stage is longer. To wait for more than a day is for
// people to decide.
const maxRetryAfter = 24 * time.Hour

// longest returns the longest wait that an error may ask for.
func (c *Config) longest() time.Duration {
	most := maxRetryAfter
	for _, stage := range c.Stages {
		most = max(most, stage.Delay)
	}
	return most
}

// active returns the stages that messages enter.
func (c *Config) active() (active []Stage) {
	for _, stage := range c.Stages {
		if !stage.Retired {
			active = append(active, stage)
		}
	}
	return active
}
