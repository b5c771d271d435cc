package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// fill makes a topic of n messages, whose keys take turns.
func (b *bench) fill(topic string, n, keys int) error {
	return b.FillWith(topic, n, func(number int) (*sarama.ProducerMessage, error) {
		record, err := wmkafka.Marshaler{}.Marshal(topic, harness.Numbered(number))
		if err == nil {
			record.Key = sarama.StringEncoder(fmt.Sprint("key-", number%keys))
		}
		return record, err
	})
}

// consumer is one instance of a service.
type consumer struct {
	topic, group string
	db           *harness.Database // nil without keys
	lanes        int               // 1 is one message at a time
	ordered      bool
	delays       []time.Duration
	work         time.Duration
	fails        func(number int) bool // this time
	succeed      int                   // messages after which it ends
	until        func() (bool, error)  // in place of that

	began     atomic.Pointer[time.Time] // the first call of the handler
	succeeded atomic.Int64
}

// patience is how long a run may take.
const patience = 2 * time.Minute

var errSlow = errors.New("a run took more than two minutes")

// run runs it and returns how long it took from the first call of the handler.
func (b *bench) run(c *consumer) (took time.Duration, err error) {
	config := spillway.Config{Publisher: b.Pub, Queue: poison.QueueConfig{Origin: wmkafka.Origin}}
	if c.db != nil {
		c.db.SetMaxOpenConns(24)
		c.db.SetMaxIdleConns(24)
		config.Service, config.DB, config.Publisher = "bench", c.db.DB, nil
	}
	if c.ordered {
		config.Ordered = &spillway.OrderedConfig{Delays: c.delays}
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	channel, err := spillway.New(ctx, config)
	if err != nil {
		return 0, err
	}
	subscriber, err := wmkafka.NewSubscriber(b.Brokers, c.group, wmkafka.SubscriberConfig{InFlight: c.lanes})
	if err != nil {
		return 0, err
	}
	done := make(chan struct{})
	end := sync.OnceFunc(func() { took = time.Since(*c.began.Load()); close(done) })
	if c.until != nil {
		go func() {
			for ended := false; !ended && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				if ended, err = c.until(); ended && c.began.Load() != nil {
					end()
				}
			}
		}()
	}
	failed := harness.Route(ctx, func(router *message.Router) error {
		channel.Attach(router)
		router.AddConsumerHandler("bench", c.topic, subscriber, func(msg *message.Message) error {
			err := c.handle(msg)
			if err == nil && int(c.succeeded.Add(1)) == c.succeed {
				end()
			}
			return err
		})
		return nil
	}, nil, done, patience)
	if ctx.Err() != nil {
		failed = errors.Join(failed, errSlow)
	}
	return took, errors.Join(err, failed)
}

func (c *consumer) handle(msg *message.Message) error {
	if c.began.Load() == nil {
		now := time.Now()
		c.began.CompareAndSwap(nil, &now)
	}
	if c.work > 0 {
		time.Sleep(c.work)
	}
	if c.fails != nil && c.fails(harness.NumberOf(msg.Payload)) {
		return harness.ErrDown
	}
	if c.db == nil {
		return nil
	}
	_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), c.db.Insert(), msg.UUID)
	return err
}

// base opens a database with the table of effects.
func (b *bench) base() (*harness.Database, error) {
	db, err := harness.Open(b.ctx, "postgres")
	if err != nil {
		return nil, err
	}
	return db, db.Effects(b.ctx)
}
