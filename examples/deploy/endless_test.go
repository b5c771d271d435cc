package main

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Promise P3: a handler that never ends holds up Close for the drain and the grace after it, and no longer. Its
// context ends when the drain does.
func TestHandlerThatNeverEnds(t *testing.T) {
	const drain, rest = time.Second, 3 * time.Second
	for _, row := range rows {
		t.Run(row.on, func(t *testing.T) {
			t.Parallel()
			row.need(t)
			plan := parse([]string{"-on", row.on})
			s, err := openSource(t.Context(), plan)
			testkit.NoError(t, err)
			defer func() {
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}()
			sub, err := s.subscribe()
			testkit.NoError(t, err)
			channel, err := spillway.New(t.Context(), spillway.Config{Publisher: letters{newTally()}, DrainTimeout: drain})
			testkit.NoError(t, err)
			router, err := message.NewRouter(message.RouterConfig{CloseTimeout: drain + rest}, watermill.NopLogger{})
			testkit.NoError(t, err)
			channel.Attach(router)
			begun, ended, closed := make(chan struct{}, 9), make(chan time.Time, 9), make(chan struct{})
			router.AddConsumerHandler("never ends", plan.topic, sub, func(msg *message.Message) error {
				begun <- struct{}{}
				<-msg.Context().Done()
				ended <- time.Now()
				<-closed
				return nil
			})
			go func() { _ = router.Run(context.Background()) }()
			<-router.Running()
			if err := s.publisher.Publish(plan.topic, message.NewMessage("1", nil)); err != nil {
				t.Fatal(err)
			}
			<-begun
			began := time.Now()
			_ = sub.Close() // the router waits for its handlers themselves too
			took := time.Since(began)
			close(closed)
			if err := router.Close(); err != nil {
				t.Error(err)
			}
			if cut := (<-ended).Sub(began); cut < drain-100*time.Millisecond || took > drain+rest {
				t.Errorf("the context ended after %s, and Close returned after %s", cut, took)
			}
		})
	}
}
