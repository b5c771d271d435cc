package footprint_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/due"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// pauses notes the longest time in which nothing was handled.
type pauses struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	n       int
}

func (p *pauses) handled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.longest = max(p.longest, now.Sub(p.last)); p.last.IsZero() {
		p.longest = 0
	}
	p.last = now
	p.n++
}

// since returns the longest pause since the last call.
func (p *pauses) since() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.longest = 0 }()
	return p.longest
}

func (p *pauses) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// How long thirty stages of a service, and a live topic, stand still when an instance joins and leaves.
func TestDeploy(t *testing.T) {
	if !whole {
		t.Skip("it holds nothing: make footprint runs it")
	}
	const topics, rounds = 30, 5
	brokers, prefix := services.Kafka(t), "deploy-"+rand.Text()
	var staged, live pauses
	pub := testkit.Must(wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{AllowLossyTopics: true}))
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
	}
	testkit.NoError(t, pub.InitializeTopics(append(names, prefix)...))
	instance := func() (stop func()) {
		waiting, subscriber, err := wmkafka.NewStages(brokers, prefix, wmkafka.SubscriberConfig{}, wmkafka.PublisherConfig{})
		testkit.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ctx = due.With(ctx, due.Stage{
			Until: func(_ *message.Message, arrived time.Time) time.Time { return arrived },
			Take:  func(msg *message.Message) { staged.handled(); msg.Ack() },
		})
		var subs []message.Subscriber
		for _, name := range names {
			sub, err := subscriber(name, name)
			if err == nil {
				_, err = sub.Subscribe(ctx, name)
			}
			testkit.NoError(t, err)
			subs = append(subs, sub)
		}
		return func() {
			cancel()
			for _, sub := range subs {
				testkit.NoError(t, sub.Close())
			}
			testkit.NoError(t, waiting.Close())
		}
	}
	first := instance()
	sub := testkit.Must(wmkafka.NewSubscriber(brokers, prefix+"-live", wmkafka.SubscriberConfig{}))
	messages := testkit.Must(sub.Subscribe(t.Context(), prefix))
	var running sync.WaitGroup
	running.Go(func() {
		for msg := range messages {
			live.handled()
			msg.Ack()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			for _, topic := range []string{prefix, names[i%topics]} {
				testkit.NoError(t, pub.Publish(topic, message.NewMessage(rand.Text(), nil)))
			}
		}
	})
	more := func() {
		n := staged.count()
		testkit.Eventually(t, "stages go on", func() bool { return staged.count() > n+100 })
		time.Sleep(2 * time.Second)
	}
	report := func(what string) {
		t.Logf("%s: the longest pause of the stages was %s, of the live topic %s", what, staged.since().Round(time.Millisecond), live.since().Round(time.Millisecond))
	}
	more()
	staged.since()
	live.since()
	more()
	report("nothing happens")
	for range rounds {
		last := instance()
		more()
		report("an instance joins")
		last()
		more()
		report("an instance leaves")
	}
	cancel()
	first()
	testkit.NoError(t, sub.Close())
	running.Wait()
	testkit.NoError(t, pub.Close())
}
