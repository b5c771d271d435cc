package main

import (
	"runtime"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// bare are subscribers of Watermill's router, which has no middleware.
var bare = []struct {
	name string
	of   func(brokers []string, group string) (message.Subscriber, error)
}{
	{"least", func(brokers []string, group string) (message.Subscriber, error) {
		return &harness.Least{Brokers: brokers, Group: group}, nil
	}},
	{"wmkafka", func(brokers []string, group string) (message.Subscriber, error) {
		return wmkafka.NewSubscriber(brokers, group, wmkafka.SubscriberConfig{})
	}},
	{"watermill_kafka", func(brokers []string, group string) (message.Subscriber, error) {
		config := kafka.SubscriberConfig{Brokers: brokers, ConsumerGroup: group,
			OverwriteSaramaConfig: kafka.DefaultSaramaSubscriberConfig()}
		config.OverwriteSaramaConfig.Consumer.Offsets.Initial = sarama.OffsetOldest
		return kafka.NewSubscriber(config, nil)
	}},
}

// compareBare measures the subscribers alone, beside the least that is possible with sarama and the router, and Spring
// Kafka.
func (p plan) compareBare(c *harness.Cluster, spring *spring, r, warm *run) (harness.Figure, error) {
	figure, spent := harness.Figure{}, map[string][]float64{}
	var sides []func() (float64, error)
	for _, b := range bare {
		sides = append(sides, warmed(c, warm, func(c *harness.Cluster, r *run) (float64, error) {
			sub, err := b.of(c.Brokers, watermill.NewUUID())
			if err != nil {
				return 0, err
			}
			took, cpu, allocs, err := consume(c, r, sub)
			figure[b.name+"_allocs"] = harness.Hundredths(allocs)
			spent[b.name] = append(spent[b.name], float64(cpu.Nanoseconds())/float64(r.messages))
			return float64(r.messages) / took.Seconds(), err
		}, r))
	}
	if spring != nil {
		sides = append(sides, warmed(c, warm, spring.seeking, r))
	}
	medians, err := harness.Alternate(p.rounds, sides...)
	if err != nil {
		return nil, err
	}
	for i, b := range bare {
		figure[b.name+"_per_s"], figure[b.name+"_cpu_ns"] = harness.Whole(medians[i]),
			harness.Whole(harness.Median(spent[b.name]))
	}
	figure["ratio_to_least"] = harness.Hundredths(medians[1] / medians[0])
	if spring != nil {
		figure["spring_per_s"] = harness.Whole(medians[len(bare)])
	}
	return figure, nil
}

// consume returns how long a router takes for the messages of a run, the processor time of the process, and how often
// it allocates for each message, with what sarama does.
func consume(c *harness.Cluster, r *run, sub message.Subscriber) (took, cpu time.Duration, allocs float64, err error) {
	var before, after runtime.MemStats
	handled := 0
	took, err = harness.Consume(c.Ctx, r.topic, r.messages, sub, func(*message.Router) {},
		func(*message.Message) error {
			switch handled++; handled { // one partition: one message at a time
			case 1:
				runtime.ReadMemStats(&before)
				cpu = -harness.ProcessorTime()
			case r.messages:
				cpu += harness.ProcessorTime()
				runtime.ReadMemStats(&after)
			}
			return nil
		})
	return took, cpu, float64(after.Mallocs-before.Mallocs) / float64(r.messages), err
}
