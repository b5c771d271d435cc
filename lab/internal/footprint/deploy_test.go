package footprint_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// Feature R5: an instance that joins or leaves interrupts the stages of the others for a moment, and no live topic.
func TestDeploy(t *testing.T) {
	topics, rounds := 3, 1
	if whole {
		topics, rounds = 30, 5
	}
	brokers, prefix := services.Kafka(t), "deploy-"+rand.Text()
	names := []string{prefix}
	for i := range topics {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
	}
	pub := testkit.Must(wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{AllowLossyTopics: true}))
	testkit.NoError(t, pub.InitializeTopics(names...))
	var taken atomic.Int64
	instance := func(log watermill.LoggerAdapter) (stop func()) {
		waiting, subscriber, err := wmkafka.NewStages(brokers, prefix,
			wmkafka.SubscriberConfig{Shared: observe.Shared{Logger: log}}, wmkafka.PublisherConfig{})
		testkit.NoError(t, err)
		ctx, cancel := context.WithCancel(due.With(t.Context(), due.Stage{
			Until: func(_ *message.Message, arrived time.Time) time.Time { return arrived },
			Take:  func(msg *message.Message) { taken.Add(1); msg.Ack() },
		}))
		var subs []message.Subscriber
		for _, name := range names[1:] {
			sub := testkit.Must(subscriber(name, name))
			testkit.Must(sub.Subscribe(ctx, name))
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
	again := func(log *testkit.Log) []testkit.Line { return log.Lines(watermill.InfoLogLevel, "the next one began") }
	live, staged := &testkit.Log{}, &testkit.Log{}
	sub := testkit.Must(wmkafka.NewSubscriber(brokers, prefix+"-live", wmkafka.SubscriberConfig{
		Shared: observe.Shared{Logger: live}}))
	messages := testkit.Must(sub.Subscribe(t.Context(), prefix))
	first := instance(staged)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for msg := range messages {
			msg.Ack()
		}
	})
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			testkit.NoError(t, pub.Publish(names[i%len(names)], message.NewMessage(rand.Text(), nil)))
		}
	})
	testkit.Eventually(t, "the first instance is a member", func() bool { return taken.Load() > 0 })
	interrupted := func(what string) {
		before := len(again(staged))
		testkit.Eventually(t, what+" is a rebalance", func() bool { return len(again(staged)) > before })
	}
	for range rounds {
		last := instance(watermill.NopLogger{})
		interrupted("an instance that joins")
		last()
		interrupted("an instance that leaves")
	}
	cancel()
	first()
	testkit.NoError(t, sub.Close())
	running.Wait()
	testkit.NoError(t, pub.Close())
	for _, line := range again(staged) {
		lasted := testkit.Must(time.ParseDuration(fmt.Sprint(line.Fields["lasted"])))
		t.Logf("the stages were interrupted for %s", lasted)
		testkit.Check(t, !whole || lasted <= 2*time.Second, "the stages were interrupted for %s", lasted)
	}
	testkit.Equal(t, "interruptions of the live topic", len(again(live)), 0)
}
