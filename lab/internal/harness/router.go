package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// closeTimeout is how long a router waits for its handlers.
const closeTimeout = 30 * time.Second

// Route runs a router to which add adds handlers, until done is closed, limit has passed, or ctx ends. If begins is not
// nil, the limit counts from its close: a consumer group takes its time.
func Route(ctx context.Context, add func(*message.Router) error, begins, done <-chan struct{},
	limit time.Duration) error {
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if err := add(router); err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- router.Run(ctx) }()
	early := func(err error) error { return fmt.Errorf("the router ended early: %w", err) }
	if begins != nil {
		select {
		case <-begins:
		case err := <-ran:
			return early(err)
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case err := <-ran:
		return early(err)
	}
	return errors.Join(router.Close(), <-ran)
}

// Consume returns how long a router takes for n messages of a topic, from the first call of the handler to the last. By
// the last one all others are acked.
func Consume(ctx context.Context, topic string, n int, sub message.Subscriber, attach func(*message.Router),
	handle message.NoPublishHandlerFunc) (time.Duration, error) {
	var began atomic.Pointer[time.Time]
	var handled atomic.Int64
	var took time.Duration
	done := make(chan struct{})
	end := sync.OnceFunc(func() { took = time.Since(*began.Load()); close(done) })
	err := Route(ctx, func(router *message.Router) error {
		attach(router)
		router.AddConsumerHandler("bench", topic, sub, func(msg *message.Message) error {
			switch handled.Add(1) {
			case 1:
				now := time.Now()
				began.Store(&now)
			case int64(n):
				end()
			}
			return handle(msg)
		})
		return nil
	}, nil, done, time.Hour)
	if err == nil {
		err = ctx.Err()
	}
	return took, err
}
