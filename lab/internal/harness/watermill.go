package harness

import (
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// Watermill runs a trial with watermill-kafka and Watermill's Retry and PoisonQueue, for as many messages as they
// manage in the limit. Letters go to "<topic>.plain".
func (c *Cluster) Watermill(topic string, retry wm.Retry, t *Trial, limit time.Duration) error {
	config := kafka.SubscriberConfig{Brokers: c.Brokers, ConsumerGroup: watermill.NewUUID(),
		OverwriteSaramaConfig: kafka.DefaultSaramaSubscriberConfig()}
	config.OverwriteSaramaConfig.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := kafka.NewSubscriber(config, nil)
	if err != nil {
		return err
	}
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: c.Brokers,
		OverwriteSaramaConfig: kafka.DefaultSaramaSyncPublisherConfig()}, watermill.NopLogger{})
	if err != nil {
		return errors.Join(err, sub.Close())
	}
	defer func() { _ = pub.Close() }()
	queue, err := wm.PoisonQueue(pub, topic+".plain")
	if err != nil {
		return errors.Join(err, sub.Close())
	}
	return Route(c.Ctx, func(router *message.Router) error {
		t.Ready = router.Running()
		router.AddMiddleware(queue, retry.Middleware)
		router.AddConsumerHandler("bench", topic, sub, t.Handle)
		return nil
	}, t.Begins, t.Done, limit)
}
