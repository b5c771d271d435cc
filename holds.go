package spillway

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// holds are the configured bounds of how long parts hold messages.
type holds struct {
	logger watermill.LoggerAdapter
	fields map[string]time.Duration
}

func holdsOf(config *Config) holds {
	h := holds{config.Logger, map[string]time.Duration{"Config.Outputs.MaxHold": config.Outputs.MaxHold}}
	if config.Breaker != nil {
		h.fields["Config.Breaker.MaxHold"] = config.Breaker.MaxHold
	}
	return h
}

// boundHolds is the router's subscriber decorator that makes parts hold messages for no longer than fits the redelivery
// time of their subscriber.
func (ch *Channel) boundHolds(sub message.Subscriber) (message.Subscriber, error) {
	r := outage.RedeliveryOf(sub)
	if r.Repeats() { // watermill-redisstream gives a message that was nacked another context
		var err error
		if sub, err = message.MessageTransformSubscriberDecorator(r.Note)(sub); err != nil {
			return nil, err
		}
	}
	return &bounded{sub, r, ch}, nil
}

type bounded struct {
	message.Subscriber
	redelivery *outage.Redelivery
	channel    *Channel
}

// attached is the key of the Channel that decorates a subscription further out.
type attached struct{}

var errTwoChannels = errors.New("spillway: two channels are attached to one router, and each would handle every " +
	"message: attach one, with Config.Receiver.Handlers for handlers with a key of their own; or leave Attach out, and " +
	"give each handler the Middleware of one channel and the router the DecoratePublisher and Plugin of both")

func (b *bounded) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if other, found := ctx.Value(attached{}).(*Channel); found && other != b.channel {
		return nil, errTwoChannels
	}
	for field, configured := range b.channel.holds.fields {
		if b.redelivery.Cuts(configured) {
			logging.HoldCut.Write(b.channel.holds.logger, errCut, logging.Fields{
				logging.Config: field, logging.Topic: topic, "max_hold": configured,
				logging.Held:      b.redelivery.MaxHold(configured),
				"redelivery_time": b.redelivery.After,
			})
		}
	}
	ctx = context.WithValue(ctx, attached{}, b.channel)
	return b.Subscriber.Subscribe(outage.WithRedelivery(ctx, b.redelivery), topic)
}

var errCut = errors.New("set it to half of the redelivery time at most or leave it out, or give the subscriber a " +
	"method RedeliveryTime if its broker redelivers later")
