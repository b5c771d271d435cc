package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// receive publishes the webhooks that are there, and then one more each time, until ctx ends or stop is called.
func (s *service) receive(ctx context.Context, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		_ = s.live.Publish(topic, s.deliveries...) // fails only if the service has ended
		next := time.NewTicker(every)
		defer next.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-next.C:
			}
			msg := s.events[i%len(s.events)].Copy()
			msg.UUID = fmt.Sprintf("event-%05d", len(s.events)+i+1)
			_ = s.live.Publish(topic, msg)
		}
	})
	return func() {
		cancel()
		ended.Wait()
	}
}
