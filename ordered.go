package spillway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/order/ordered"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/settings"
)

// OrderedConfig configures the order of keys. The zero value is ready for use.
type OrderedConfig struct {
	// Delays are the waits of a message that fails again and again, in this order. Behind the last one it has failed
	// for good. Default: 5 s, 1 min, 10 min.
	Delays []time.Duration
	// Hold lets the messages of a key stand when one of them fails for good, until a person releases, skips or discards
	// it: redrive sequences. Set it if a later message is wrong without the earlier one. An invalid message never
	// holds. Default: it is dead-lettered, and the next one of its key goes on.
	Hold bool
}

// maxDelay catches a delay in a wrong unit.
const maxDelay = 366 * 24 * time.Hour

func (c *OrderedConfig) validate(config *Config) error {
	if config.Stages != nil {
		return errors.New("Config.Ordered and Config.Stages are both set: a message in a stage is overtaken by those " +
			"behind it; leave Stages out, and give their delays to Ordered.Delays")
	}
	for i, d := range c.Delays {
		if d < time.Millisecond || d > maxDelay {
			return fmt.Errorf("Config.Ordered.Delays[%d] is %s: it must be 1ms to %s", i, d, maxDelay)
		}
	}
	return nil
}

// order makes the part that keeps the order of keys beside the keys of the receiver.
func (ch *Channel) order(ctx context.Context, config *Config, receiver *idempotency.Receiver) error {
	delays := config.Ordered.Delays
	if len(delays) == 0 {
		delays = []time.Duration{5 * time.Second, time.Minute, 10 * time.Minute}
	}
	keys := sequence.KeysOf(receiver)
	store, err := keys.Open(ctx)
	if err != nil {
		return fmt.Errorf("Config.Ordered: %w", err)
	}
	ch.listed = store.Listed()
	ch.ordered = ordered.New(ordered.Config{Delays: delays, Hold: config.Ordered.Hold, Keys: keys, Store: store,
		Inside: ch.queue.Inside(), StageOf: poison.Inside().StageOf, Shared: settings.Shared{Logger: config.Logger,
			Classifier: config.Retry.Classifier}})
	return nil
}

// offerOrder is the router's subscriber decorator that refuses subscribers without an order of keys.
func (ch *Channel) offerOrder(sub message.Subscriber) (message.Subscriber, error) {
	if ch.ordered == nil {
		return sub, nil
	}
	return offering{sub, ch.ordered}, nil
}

type offering struct {
	message.Subscriber
	part *ordered.Part
}

func (o offering) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	offer := &placing.Order{Of: o.part.Ordering()}
	ctx, cancel := context.WithCancel(placing.WithOrder(ctx, offer))
	refused := true
	defer func() {
		if refused {
			cancel()
		}
	}()
	messages, err := o.Subscriber.Subscribe(ctx, topic)
	if err == nil && !offer.Taken {
		return nil, fmt.Errorf("spillway: Config.Ordered is set, and the subscriber of %q (%T) does not deliver the messages "+
			"of a key one at a time: use wmkafka.NewSubscriber with SubscriberConfig.InFlight of 2 or more, wmamqp.NewSubscriber "+
			"with SubscriberConfig.Key on a queue with a single active consumer, wmsql.NewSubscriber with SubscriberConfig.Key, "+
			"or a channel without Ordered for this handler", topic, o.Subscriber)
	}
	refused = err != nil
	return messages, err
}
