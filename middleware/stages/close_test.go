package stages_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// closes is a subscriber that tells of its end.
type closes struct {
	message.Subscriber
	name   string
	closed chan<- string
}

func (c *closes) Close() error {
	c.closed <- c.name
	return nil
}

// Feature R9: when the context of Run ends, Watermill leaves subscribers open. Those of the stages are closed then,
// each once and one that several stages have with the last; one that a handler has too is left to the router.
func TestStageSubscribersAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		shared, extend, own bool
		want                []string
	}{
		"one each":                {want: []string{"orders.billing.retry.1m", "orders.billing.retry.1s"}},
		"one for all":             {shared: true, want: []string{"shared"}},
		"the handler's own":       {shared: true, own: true},
		"one each, extended":      {extend: true, want: []string{"orders.billing.retry.1m", "orders.billing.retry.1s"}},
		"one for all, extended":   {shared: true, extend: true, want: []string{"shared"}},
		"the handler's, extended": {shared: true, extend: true, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			ps, closed := gochannel.NewGoChannel(gochannel.Config{}, nil), make(chan string, 20)
			shared, live := &closes{ps, "shared", closed}, &closes{ps, "live", closed}
			if c.own {
				live = shared
			}
			s := newStaging(t, stages.Config{
				Stages: stages.Delays(time.Second, time.Minute), Publisher: ps,
				Subscriber: func(topic, _ string) (message.Subscriber, error) {
					if c.shared {
						return shared, nil
					}
					return &closes{ps, topic, closed}, nil
				},
			}, nil)
			handle := func(*message.Message) error { return nil }
			if c.extend {
				s.router.AddConsumerHandler("billing", "orders", live, handle)
				testkit.Must(s.stages.Extend(s.router, "billing", "orders"))
			} else {
				testkit.Must(s.stages.AddConsumerHandler(s.router, "billing", "orders", live, handle))
			}
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- s.router.Run(ctx) }()
			<-s.router.Running()
			cancel()
			testkit.NoError(t, <-ran)
			var names []string
			for len(closed) > 0 {
				if name := <-closed; name != "live" { // the router closes it, or not
					names = append(names, name)
				}
			}
			slices.Sort(names)
			testkit.Check(t, c.own || slices.Equal(names, c.want), "closed %q, want %q", names, c.want)
			_ = ps.Close()
		})
	}
}

// Feature R9: a handler's own middlewares that its stages would lack are refused, whether they were there before Extend
// or came later past it: a tenant's context that one of them sets must not be missing at the second attempt.
func TestExtendRefusesMiddlewaresOfItsOwn(t *testing.T) {
	tenant := func(h message.HandlerFunc) message.HandlerFunc { return h }
	s := newStaging(t, stages.Config{Stages: stages.Delays(1e9)}, nil)
	add := func(name string) *message.Handler {
		return s.router.AddConsumerHandler(name, name, s.broker.consumer(), func(*message.Message) error { return nil })
	}
	before := add("before")
	before.AddMiddleware(tenant)
	testkit.Says(t, testkit.Err(s.stages.Extend(s.router, "before", "before")), "1 middleware(s) of its own")
	n := len(s.router.Handlers())
	testkit.Check(t, n == 1, "the router has %d handlers", n)
	after := add("after")
	extended := testkit.Must(s.stages.Extend(s.router, "after", "after"))
	after.AddMiddleware(tenant)
	extended.AddMiddleware(tenant)
	err := s.stages.Plugin(s.router)
	testkit.Check(t, err == nil, "added to both: %v", err)
	after.AddMiddleware(tenant)
	err = s.stages.Plugin(s.router)
	testkit.Check(t, err != nil && strings.Contains(err.Error(), `"after"`), "after: %v", err)
}

// Feature D4: a publisher that takes letters, or staged messages, and a handler's outputs too would be closed with the
// handler.
func TestStagesRefuseASharedPublisher(t *testing.T) {
	ps := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	defer ps.Close()
	s := newStaging(t, stages.Config{Publisher: ps, Stages: stages.Delays(1e9)}, nil)
	transformed := testkit.Must(message.MessageTransformPublisherDecorator(func(*message.Message) {})(ps))
	nothing := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	for want, pub := range map[string]message.Publisher{"Config.Publisher": ps, "Config.Publisher ": transformed, "the publisher of dead letters": s.letters} {
		_, err := s.stages.AddHandler(s.router, "billing", "orders", ps, "out", pub, nothing)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), strings.TrimSpace(want)), "%s: %v", want, err)
	}
	testkit.Check(t, s.stages.Plugin(nil) != nil, "a nil router")
}
