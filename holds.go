package spillway

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/outage"
)

// holds are the configured bounds of how long parts hold messages.
type holds struct {
	logger watermill.LoggerAdapter
	fields map[string]time.Duration
}

func holdsOf(config *Config) holds {
	h := holds{config.Logger, map[string]time.Duration{
		"Config.Outputs.MaxHold": config.Outputs.MaxHold, "Config.Receiver.MaxHold": config.Receiver.MaxHold,
	}}
	if config.Outage != nil {
		h.fields["Config.Outage.MaxHold"] = config.Outage.MaxHold
	}
	return h
}

// boundHolds is the router's subscriber decorator that makes parts hold messages for no longer than fits the redelivery time of their
// subscriber.
func (ch *Channel) boundHolds(sub message.Subscriber) (message.Subscriber, error) {
	r := outage.RedeliveryOf(sub)
	if r.Repeats() { // watermill-redisstream gives a message that was nacked another context
		var err error
		if sub, err = message.MessageTransformSubscriberDecorator(r.Note)(sub); err != nil {
			return nil, err
		}
	}
	return &bounded{sub, r, ch.holds}, nil
}

type bounded struct {
	message.Subscriber
	redelivery *outage.Redelivery
	holds      holds
}

func (b *bounded) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	for field, configured := range b.holds.fields {
		if b.redelivery.Cuts(configured) {
			logging.HoldCut.Write(b.holds.logger, errCut, logging.Fields{
				logging.Config: field, logging.Topic: topic, "max_hold": configured, logging.Held: b.redelivery.MaxHold(configured), "redelivery_time": b.redelivery.After,
			})
		}
	}
	return b.Subscriber.Subscribe(outage.WithRedelivery(ctx, b.redelivery), topic)
}

var errCut = errors.New("set it to half of the redelivery time at most or leave it out, or give the subscriber a method RedeliveryTime if its " +
	"broker redelivers later")
