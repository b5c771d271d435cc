package wmkafka

import (
	"context"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/graceful"
	"github.com/watermill-spillway/spillway/internal/services"
)

// stranger is a session that the coordinator does not know.
type stranger struct{ *group }

func (stranger) MemberID() string    { return "nobody" }
func (stranger) GenerationID() int32 { return 7 }

// Sentence K11: handlers do not go on for the time of a drain if the group may have given the partition away. A member
// that it does not know, and one that gets no answer, are such.
func TestTenureEndsWithMembership(t *testing.T) {
	const drain = time.Minute
	for name, brokers := range map[string][]string{
		"unknown member": services.Kafka(t),
		"no answer":      {"127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub, err := NewSubscriber(brokers, "g", SubscriberConfig{})
			if err != nil {
				t.Fatal(err)
			}
			s, g := newSubscription(sub, "orders", func() {}), newGroup(t, 0)
			g.ctx, g.end = context.WithCancel(graceful.With(t.Context(), drain))
			s.begin(stranger{g})
			work := s.tenure.work
			g.end()
			began := time.Now()
			select {
			case <-work.Done():
			case <-time.After(drain / 2):
				t.Fatal("the handlers go on")
			}
			if took := time.Since(began); took < soon {
				t.Errorf("the contexts ended after %s, before anybody was asked", took)
			}
		})
	}
}
