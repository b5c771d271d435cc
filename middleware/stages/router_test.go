package stages_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Promise P3: a subscriber of a stage that is closed, by whomever, gives back what waits, and does not wait for it.
func TestStageSubscriberClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Hour)}, nil)
		s.broker.endless = true
		var subs []message.Subscriber
		s.router.AddSubscriberDecorators(func(sub message.Subscriber) (message.Subscriber, error) {
			subs = append(subs, sub)
			return sub, nil
		})
		s.handle("billing", "orders", failTimes(newNote(), 1))
		s.run()
		s.publish("orders", "1")
		time.Sleep(time.Minute)
		start := time.Now()
		for _, sub := range subs {
			testkit.NoError(t, sub.Close())
		}
		if took := time.Since(start); took > time.Second || len(s.broker.left()["orders.billing.retry.1h"]) != 1 {
			t.Errorf("closed in %s, left %v", took, s.broker.left())
		}
		s.stop()
	})
}

// Feature R9: a handler that is added while the router runs has its stages after RunHandlers.
func TestStagesAddedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, time.Minute)}, nil)
		n := newNote()
		s.handle("shipping", "parcels", failTimes(newNote(), 0))
		s.run()
		s.publish("orders", "1")
		s.handle("billing", "orders", failTimes(n, 2))
		testkit.NoError(t, s.router.RunHandlers(t.Context()))
		time.Sleep(2 * time.Minute)
		s.stop()
		testkit.Check(t, len(n.of("1")) == 3, "handled %v", n.of("1"))
	})
}

// Feature R9: a handler that is stopped stops with its stages, which keep their messages for the next consumer; other
// handlers go on.
func TestStageStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Minute)}, nil)
		n := newNote()
		added := s.handle("billing", "orders", failTimes(n, 1))
		s.handle("packing", "parcels", failTimes(n, 1))
		s.run()
		s.publish("orders", "1")
		time.Sleep(time.Second)
		added.Stop()
		<-added.Stopped()
		s.publish("orders", "2")
		s.publish("parcels", "3")
		time.Sleep(time.Hour)
		if len(n.of("1")) != 1 || len(n.of("2")) != 0 || len(n.of("3")) != 2 || len(s.broker.left()["orders.billing.retry.1m"]) != 1 {
			t.Errorf("handled %v, %v, %v, left %v", n.of("1"), n.of("2"), n.of("3"), s.broker.left())
		}
		s.stop()
		s.again()
		s.handle("billing", "orders", failTimes(n, 1))
		s.run()
		time.Sleep(time.Hour)
		s.stop()
		testkit.Check(t, len(n.of("1")) == 2 && len(n.of("2")) == 2, "handled %v, %v", n.of("1"), n.of("2"))
	})
}
