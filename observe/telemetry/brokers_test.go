package telemetry_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive"
)

// Feature O2: over a stage topic, a dead-letter topic and DrainTopic, on Kafka. The spans have partition, offset and
// group.
func TestStoryKafka(t *testing.T) {
	brokers := services.Kafka(t)
	topic := "telemetry-" + watermill.NewShortUUID()
	admin := testkit.Must(sarama.NewClusterAdmin(brokers, nil))
	t.Cleanup(func() { _ = admin.Close() })
	testkit.NoError(t, admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	publisher := func() message.Publisher {
		pub := testkit.Must(wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{}))
		t.Cleanup(func() { _ = pub.Close() })
		return pub
	}
	subscriber := func(group string) (message.Subscriber, error) {
		sub, err := wmkafka.NewSubscriber(brokers, group, wmkafka.SubscriberConfig{})
		if err == nil {
			t.Cleanup(func() { _ = sub.Close() })
		}
		return sub, err
	}
	live := testkit.Must(subscriber(topic + "-billing"))
	w := world{
		system: "kafka", live: publisher(), topic: topic, stage: topic + ".billing.retry.10ms", dead: topic + ".dlq",
		config: spillway.Config{
			Publisher: publisher(),
			Queue:     poison.QueueConfig{Origin: wmkafka.Origin},
			Stages: &stages.Config{
				Publisher: publisher(), Stages: stages.Delays(10 * time.Millisecond),
				Subscriber: func(_, group string) (message.Subscriber, error) { return subscriber(group) },
			},
		},
		handle: withStages(topic, live),
		back: func(t *testing.T, _ *spillway.Channel, observed *telemetry.Telemetry) {
			letters := testkit.Must(subscriber(topic + "-drain"))
			report, err := redrive.DrainTopic(t.Context(), letters, publisher(), redrive.DrainTopicConfig{
				Topic: topic + ".dlq", Park: publisher(), Max: 1, IdleAfter: testkit.Patience,
				Rules: redrive.Rules{Allow: []string{topic}, Hooks: observed.Redrives(redrive.Hooks{})},
			})
			if err != nil || report.Redriven != 1 {
				t.Errorf("%+v, error %v", report, err)
			}
		},
	}
	spans := tell(t, w)
	judge(t, w, spans)
	for _, s := range spans {
		if s.Name == "process "+topic && attr(s, "spillway.stage") == "" &&
			(attr(s, "messaging.destination.partition.id") != "0" || attr(s, "messaging.kafka.offset") == "" || attr(s, "messaging.consumer.group.name") == "") {
			t.Errorf("%q has the attributes %v", s.Name, s.Attributes)
		}
	}
}

// Feature O2: over a stage queue, a dead-letter queue and a redrive handler, on RabbitMQ.
func TestStoryRabbitMQ(t *testing.T) {
	uri := services.AMQP(t)
	topic := "telemetry-" + watermill.NewShortUUID()
	publisher := func() *wmamqp.Publisher {
		pub := testkit.Must(wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{}))
		t.Cleanup(func() { _ = pub.Close() })
		return pub
	}
	subscriber := func() message.Subscriber {
		sub := testkit.Must(wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{}))
		t.Cleanup(func() { _ = sub.Close() })
		return sub
	}
	w := world{
		system: "rabbitmq", live: publisher(), topic: topic, stage: topic + ".billing.retry.10ms", dead: topic + ".dlq",
		config: spillway.Config{
			Publisher: publisher(),
			Queue:     poison.QueueConfig{Origin: wmamqp.Origin},
			Stages: &stages.Config{
				Publisher: publisher(), Stages: stages.Delays(10 * time.Millisecond),
				Subscriber: func(string, string) (message.Subscriber, error) { return subscriber(), nil },
			},
		},
		handle: withStages(topic, subscriber()),
		back: func(t *testing.T, _ *spillway.Channel, observed *telemetry.Telemetry) {
			back := testkit.Must(redrive.NewHandler(publisher(), redrive.HandlerConfig{
				Rules: redrive.Rules{Allow: []string{topic}, Hooks: observed.Redrives(redrive.Hooks{})}, Park: publisher(), MinWait: -1,
			}))
			t.Cleanup(testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
				r.AddConsumerHandler("redrive", topic+".dlq", subscriber(), back.Handle)
			}))
		},
	}
	judge(t, w, tell(t, w))
}

// withStages adds the handler billing with stages, whose subscriber of the live topic is sub.
func withStages(topic string, sub message.Subscriber) func(*testing.T, *spillway.Channel, *message.Router, message.NoPublishHandlerFunc) {
	return func(t *testing.T, channel *spillway.Channel, router *message.Router, h message.NoPublishHandlerFunc) {
		testkit.Must(channel.Stages().AddConsumerHandler(router, "billing", topic, sub, h))
	}
}

// Feature O2: over a stage topic, the dead-letter store and a drain, on Go channels.
func TestStoryInMemory(t *testing.T) {
	live, waiting := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil), gochannel.NewGoChannel(gochannel.Config{}, nil)
	w := world{
		system: "gochannel", live: live, topic: "orders", stage: "orders.billing.retry.10ms", dead: "orders.dlq",
		config: spillway.Config{Service: "shop", DB: open(t), Stages: &stages.Config{
			Publisher: waiting, Stages: stages.Delays(10 * time.Millisecond),
			Subscriber: func(string, string) (message.Subscriber, error) { return waiting, nil },
		}},
		handle: withStages("orders", live),
		back: func(t *testing.T, channel *spillway.Channel, observed *telemetry.Telemetry) {
			report, err := redrive.Drain(t.Context(), channel.Letters(), live, redrive.DrainConfig{
				Rules: redrive.Rules{Allow: []string{"orders"}, Hooks: observed.Redrives(redrive.Hooks{})},
			})
			if err != nil || report.Redriven != 1 {
				t.Errorf("%+v, error %v", report, err)
			}
		},
	}
	spans := tell(t, w)
	judge(t, w, spans)
	t.Log("\n" + tree(spans))
}
