package telemetry_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive"
)

// closed closes a publisher or a subscriber with the test.
func closed[C interface{ Close() error }](t *testing.T, c C) C {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Feature O2: over a stage topic, a dead-letter topic and DrainTopic. Spans have partition, offset and group.
func TestHistoryKafka(t *testing.T) {
	brokers := services.Kafka(t)
	publisher := closed(t, testkit.Must(wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{})))
	subscriber := func(group string) message.Subscriber {
		return closed(t, testkit.Must(wmkafka.NewSubscriber(brokers, group, wmkafka.SubscriberConfig{})))
	}
	topic := "telemetry-" + watermill.NewShortUUID()
	w := world{
		system: "kafka", live: publisher, topic: topic, stage: topic + ".billing.retry.10ms", dead: topic + ".dlq",
		sub: subscriber(topic + "-billing"),
		config: spillway.Config{
			Publisher: publisher, Queue: poison.QueueConfig{Origin: wmkafka.Origin},
			Stages: &stages.Config{
				Publisher: publisher, Stages: stages.Delays(10 * time.Millisecond),
				Subscriber: func(_, group string) (message.Subscriber, error) { return subscriber(group), nil },
			},
		},
	}
	admin := closed(t, testkit.Must(sarama.NewClusterAdmin(brokers, nil)))
	testkit.NoError(t, admin.CreateTopic(w.topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	w.back = func(t *testing.T, _ *spillway.Channel, rules redrive.Rules) {
		report, err := redrive.DrainTopic(t.Context(), subscriber(w.topic+"-drain"), publisher,
			redrive.DrainTopicConfig{
				Topic: w.dead, Park: publisher, Max: 1, IdleAfter: testkit.Patience, Rules: rules,
				FromBeginning: true,
			})
		testkit.Check(t, err == nil && report.Redriven == 1, "%+v, error %v", report, err)
	}
	for _, s := range tell(t, w) {
		testkit.Check(t, s.Name != "process "+w.topic || attr(s, "spillway.stage") != "" ||
			attr(s, "messaging.kafka.offset") != "" &&
				attr(s, "messaging.destination.partition.id") == "0" && attr(s, "messaging.consumer.group.name") != "",
			"%q has the attributes %v", s.Name, s.Attributes)
	}
}

// Feature O2: over a stage topic, the dead-letter store and a drain, on Go channels. The instruments count it.
func TestHistoryInMemory(t *testing.T) {
	live, waiting := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil), gochannel.NewGoChannel(gochannel.Config{}, nil)
	reader := sdkmetric.NewManualReader()
	tell(t, world{
		meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		system: "gochannel", live: live, sub: live, topic: "orders", stage: "orders.billing.retry.10ms",
		dead: "orders.dlq",
		config: spillway.Config{Service: "shop", DB: databases.SQLite.New(t), Stages: &stages.Config{
			Publisher: waiting, Stages: stages.Delays(10 * time.Millisecond),
			Subscriber: func(string, string) (message.Subscriber, error) { return waiting, nil },
		}},
		back: func(t *testing.T, channel *spillway.Channel, rules redrive.Rules) {
			report, err := redrive.Drain(t.Context(), channel.Letters(), live, redrive.DrainConfig{Rules: rules})
			testkit.Check(t, err == nil && report.Redriven == 1, "%+v, error %v", report, err)
		},
	})
	got := read(t, reader)
	for name, want := range map[string]int64{
		"spillway.messages_applied{consumer=shop/billing}":                   1,
		"spillway.redriven{topic=orders}":                                    1,
		"spillway.reentries{handler=billing,stage=1,topic=orders}":           1,
		"spillway.stage_lateness{handler=billing,stage=1,topic=orders}":      1,
		"spillway.retries{handler=billing,place=stage,stage=1,topic=orders}": 1,
	} {
		testkit.Equal(t, name, got[name], want)
	}
}
