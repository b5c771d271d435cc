package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
)

// Subscriber subscribes with watermill-nats to durable consumers that exist before it and outlive it.
type Subscriber struct {
	config  Config
	conn    *natsgo.Conn
	js      natsgo.JetStreamContext
	logger  watermill.LoggerAdapter
	ctx     context.Context // ends with Close
	close   func() error
	running sync.WaitGroup
}

// watchInterval is how often a subscriber looks whether its consumer is still there.
const watchInterval = 3 * time.Second

// NewSubscriber returns a subscriber of config.Group.
func NewSubscriber(config Config, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if config.Group == "" {
		return nil, errors.New(`jetstream: Config.Group is "": give the name of the service`)
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	config = config.withDefaults()
	conn, err := config.connect()
	if err != nil {
		return nil, err
	}
	js, err := conn.JetStream(natsgo.MaxWait(config.PublishWait))
	if err != nil {
		conn.Close()
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	s := &Subscriber{config: config, conn: conn, js: js, logger: logger, ctx: ctx}
	s.close = sync.OnceValue(func() error {
		end()
		s.running.Wait()
		// What was requeued is sent. If the server is unavailable, AckWait brings it.
		_ = conn.FlushTimeout(config.PublishWait)
		conn.Close()
		return nil
	})
	return s, nil
}

// Subscribe makes the group's consumer of the topic, if there is none, and subscribes to it. A new consumer begins with
// the oldest message of the stream.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.configure(topic); err != nil {
		return nil, err
	}
	g := &gate{Unmarshaler: s.config.Marshaler}
	stock, err := nats.NewSubscriberWithNatsConn(s.conn, s.stock(g), s.logger)
	if err != nil {
		return nil, err
	}
	inner, release := context.WithCancel(context.WithoutCancel(ctx))
	incoming, err := stock.Subscribe(inner, topic)
	if err != nil {
		release()
		return nil, fmt.Errorf("subscribe to %q: %w", topic, err)
	}
	ended, end := context.WithCancel(ctx)
	detach := context.AfterFunc(s.ctx, end)
	sub := &subscription{gate: g, incoming: incoming, out: make(chan *message.Message), ended: ended, release: release,
		inHand: map[*message.Message]struct{}{}}
	s.running.Go(func() {
		defer detach()
		defer end()
		sub.run()
	})
	s.running.Go(func() { s.watch(ended, topic) })
	return sub.out, nil
}

// stock configures watermill-nats.
func (s *Subscriber) stock(unmarshaler nats.Unmarshaler) nats.SubscriberSubscriptionConfig {
	return nats.SubscriberSubscriptionConfig{
		Unmarshaler:      unmarshaler,
		SubscribersCount: s.config.InFlight,
		AckWaitTimeout:   s.config.AckWait,
		QueueGroupPrefix: durable(s.config.Group),
		NakDelay:         nats.NewStaticDelay(nakDelay),
		JetStream: nats.JetStreamConfig{
			ConnectOptions:   []natsgo.JSOpt{natsgo.MaxWait(s.config.PublishWait)},
			SubscribeOptions: []natsgo.SubOpt{natsgo.ManualAck()},
			DurablePrefix:    durable(s.config.Group),
		},
	}
}

// Close ends the contexts of messages in hand, and waits at most a second until handlers have settled them. Then it
// gives back all that is left, and ends the subscriptions.
func (s *Subscriber) Close() error { return s.close() }

// RedeliveryTime returns Config.AckWait. Spillway holds no message for longer than half of it.
func (s *Subscriber) RedeliveryTime() time.Duration { return s.config.AckWait }

// Backlog returns how many of the topic's messages the group has not acked.
func (s *Subscriber) Backlog(ctx context.Context, topic string) (int, error) {
	info, err := s.js.ConsumerInfo(Name(topic), durable(s.config.Group), natsgo.Context(ctx))
	if err == nil {
		return int(info.NumPending) + info.NumAckPending, nil
	}
	if !errors.Is(err, natsgo.ErrConsumerNotFound) {
		return 0, err
	}
	stream, err := s.js.StreamInfo(Name(topic), natsgo.Context(ctx))
	if err != nil {
		return 0, err
	}
	return int(stream.State.Msgs), nil
}
