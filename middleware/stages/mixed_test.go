package stages_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// holding is a subscriber that hands messages over by itself, and does not wait for them at its end.
type holding struct {
	stage *due.Stage
	ctx   context.Context
}

func (h *holding) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	h.stage, h.ctx = due.Of(ctx), ctx
	ended := make(chan *message.Message)
	context.AfterFunc(ctx, func() { close(ended) })
	return ended, nil
}

func (h *holding) Close() error   { return nil }
func (h *holding) HoldsUntilDue() {}

// Promise P4: if the live subscription or that of a stage ends by itself, the handler ends as one without stages does:
// the router stops, and one Error line names the topic. A graceful end makes no line, also if a subscriber ends before
// the handler that shares it.
func TestSubscriptionEndsByItself(t *testing.T) {
	const live, stage = "orders", "orders.billing.retry.1s"
	for name, row := range map[string]struct {
		ends     string
		graceful bool
		wants    int
	}{
		"live":                  {ends: live, wants: 1},
		"stage":                 {ends: stage, wants: 1},
		"at the end":            {graceful: true},
		"live, before the end":  {ends: live, graceful: true},
		"stage, before the end": {ends: stage, graceful: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &lines{}
				subs := map[string]*consumer{}
				var s *staging
				s = newStaging(t, stages.Config{
					Stages: stages.Delays(time.Second, time.Minute),
					Subscriber: func(topic, _ string) (message.Subscriber, error) {
						subs[topic] = s.broker.consumer()
						return subs[topic], nil
					},
				}, log)
				subs[live] = s.broker.consumer()
				n := newNote()
				testkit.Must(s.stages.AddConsumerHandler(s.router, "billing", live, subs[live], failTimes(n, 1)))
				ran := make(chan error, 1)
				go func() { ran <- s.router.Run(t.Context()) }()
				<-s.router.Running()
				s.publish(live, "a")
				time.Sleep(time.Minute)
				if row.ends != "" {
					subs[row.ends].cancel()
				}
				if row.graceful {
					time.Sleep(time.Second)
					testkit.NoError(t, s.router.Close())
				} else {
					time.Sleep(time.Minute)
				}
				synctest.Wait()
				select {
				case err := <-ran:
					testkit.NoError(t, err)
				default:
					t.Error("the router goes on without messages")
					_ = s.router.Close()
				}
				ended := log.Lines(watermill.ErrorLogLevel, "subscription ended by itself")
				testkit.Check(t, len(ended) == row.wants && (row.wants <= 0 || ended[0].Fields["topic"] == row.ends),
					"%v", ended)
				testkit.Equal(t, "attempts", len(n.of("a")), 2)
			})
		})
	}
}

// Feature R5: a subscriber that holds the messages of a stage can hand one over late. While its hook runs the handler
// has not ended. What comes later is nacked.
func TestHandedOverAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub, release := &holding{}, make(chan struct{})
		s := newStaging(t, stages.Config{
			Stages:     stages.Delays(time.Second),
			Subscriber: func(string, string) (message.Subscriber, error) { return sub, nil },
			Hooks:      stages.Hooks{OnReentry: func(context.Context, stages.Reentry) { <-release }},
		}, nil)
		n := newNote()
		s.handle("billing", "orders", failTimes(n, 0))
		s.run()
		late, later := newMessage("late"), newMessage("later")
		for _, msg := range []*message.Message{late, later} {
			ctx, cancel := context.WithCancel(sub.ctx)
			defer cancel()
			msg.SetContext(ctx)
		}
		go sub.stage.Take(late)
		time.Sleep(2 * time.Second)
		closed := make(chan struct{})
		go func() { s.stop(); close(closed) }()
		time.Sleep(time.Minute)
		select {
		case <-closed:
			t.Error("the handler has ended under a message that comes to it")
		default:
		}
		close(release)
		<-closed
		sub.stage.Take(later)
		select { // by the handler, or given back
		case <-late.Acked():
		case <-late.Nacked():
		default:
			t.Error("it is not settled")
		}
		select {
		case <-later.Nacked():
		default:
			t.Error("what comes after the end is not nacked")
		}
		testkit.Equal(t, "what comes after the end is handled", len(n.of("later")), 0)
	})
}
