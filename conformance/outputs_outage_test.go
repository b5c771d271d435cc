//go:build !race

// watermill-amqp has a data race of its own when it dials again, so that make test runs this without the race detector.

package conformance_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// Feature D15, promises P1, P3, decision 13: an outage of the outputs' broker sets no source aside, and loses none.
func TestOutputsBrokerCrashes(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, topic string) message.Publisher{
		"rabbitmq": func(t *testing.T, topic string) message.Publisher {
			config := wmamqp.PublisherConfig{}
			config.AMQP.Queue.Arguments = queueType("classic") // a quorum queue that was just made takes long to come back
			pub := testkit.Must(wmamqp.NewPublisher(services.AMQP(t), config))
			testkit.NoError(t, pub.InitializeTopics(topic))
			services.KeepQueues(t)
			return pub
		},
		"kafka": func(t *testing.T, topic string) message.Publisher {
			pub := testkit.Must(wmkafka.NewPublisher(services.Kafka(t), wmkafka.PublisherConfig{}))
			testkit.NoError(t, pub.InitializeTopics(topic))
			return pub
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := "outputs-" + rand.Text()[:12]
			pub := open(t, topic)
			dead, published, logger := &shop.Outputs{}, &shop.Outputs{}, watermill.NewCaptureLogger()
			channel := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: dead, Logger: logger}))
			const all = 200
			source := gochannel.NewGoChannel(gochannel.Config{}, nil)
			stop := testkit.RunRouter(t, nil, func(router *message.Router) {
				channel.Attach(router)
				router.AddPublisherDecorators(func(pub message.Publisher) (message.Publisher, error) {
					return confirmed{pub, published}, nil
				})
				router.AddHandler("billing", "orders", source, topic, pub,
					func(msg *message.Message) ([]*message.Message, error) {
						return []*message.Message{message.NewMessage(msg.UUID, []byte("output"))}, nil
					})
			})
			go func() {
				for i := range all {
					time.Sleep(5 * time.Millisecond)
					_ = source.Publish("orders", message.NewMessage(fmt.Sprint(i), []byte("payload")))
				}
			}()
			testkit.Eventually(t, "outputs are published", func() bool { return len(published.IDs()) >= 50 })
			services.Kill(t, name)
			time.Sleep(3 * time.Second) // longer than the five attempts
			services.Start(t, name)
			ended := func() int { return len(unique(published.IDs())) + len(dead.IDs()) }
			for deadline := time.Now().Add(3 * time.Minute); ended() < all && time.Now().Before(deadline); {
				time.Sleep(50 * time.Millisecond)
			}
			stop()
			testkit.Equal(t, "healthy sources that are set aside", len(dead.IDs()), 0)
			testkit.Equal(t, "published outputs", len(unique(published.IDs())), all)
			if t.Failed() {
				t.Log(logger.Captured()[watermill.ErrorLogLevel], logger.Captured()[watermill.InfoLogLevel])
			}
		})
	}
}

// confirmed notes what a publisher has confirmed.
type confirmed struct {
	message.Publisher
	published *shop.Outputs
}

func (p confirmed) Publish(topic string, messages ...*message.Message) error {
	if err := p.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	return p.published.Publish(topic, messages...)
}

func unique(ids []string) []string {
	slices.Sort(ids)
	return slices.Compact(ids)
}
