package stages_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/due"
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

// Feature R5: a subscriber that holds the messages of a stage can hand one over late. While its hook runs the handler has not ended.
// What comes later is nacked.
func TestHandedOverAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub, release := &holding{}, make(chan struct{})
		s := newStaging(t, stages.Config{
			Stages:     stages.Delays(time.Second),
			Subscriber: func(string, string) (message.Subscriber, error) { return sub, nil },
			OnReentry:  func(context.Context, stages.Reentry) { <-release },
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
		if len(n.of("later")) != 0 {
			t.Error("what comes after the end is handled")
		}
	})
}
