package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// away is how long a node is unavailable: longer than others wait until they do without it.
const unavailable = 8 * time.Second

// kafkaRounds break brokers by what they are to the topic and to the group of consumers.
func kafkaRounds(c *cluster, brokers []string, between *links) []round {
	leads := func(topic string) (led *node, id int, err error) {
		return led, id, onKafka(brokers, func(admin sarama.ClusterAdmin) error {
			topics, err := admin.DescribeTopics([]string{topic})
			if err != nil || len(topics) == 0 || len(topics[0].Partitions) == 0 {
				return errors.Join(err, errors.New("the topic has no partitions"))
			}
			id = int(max(topics[0].Partitions[0].Leader, 1)) - 1
			led = c.nodes[id]
			return nil
		})
	}
	allKilled := func(ctx context.Context, _ string) (err error) {
		for _, n := range c.nodes {
			n.kill()
		}
		for _, n := range c.nodes {
			err = errors.Join(err, n.start())
		}
		for _, n := range c.nodes {
			err = errors.Join(err, n.ready(ctx))
		}
		return err
	}
	return []round{
		{name: "a leader is killed", breaks: func(ctx context.Context, topic string) error {
			led, _, err := leads(topic)
			if err != nil {
				return err
			}
			return led.crashed(ctx, unavailable)
		}},
		{name: "the group's coordinator is killed", breaks: func(ctx context.Context, topic string) error {
			id, err := coordinator(brokers, topic)
			if err != nil {
				return err
			}
			return c.nodes[id].crashed(ctx, unavailable)
		}},
		{name: "each broker restarts", breaks: func(ctx context.Context, _ string) error {
			return rolling(ctx, c.nodes)
		}},
		{name: "a leader hangs", breaks: func(ctx context.Context, topic string) error {
			led, _, err := leads(topic)
			if err != nil {
				return err
			}
			return hangs(ctx, 2*unavailable, led)
		}},
		{name: "a leader is cut off from the other brokers", breaks: func(ctx context.Context, topic string) error {
			_, id, err := leads(topic)
			if err != nil {
				return err
			}
			between.cut(id, true)
			defer between.cut(id, false)
			return sleep(ctx, 2*unavailable)
		}},
		{name: "two of three brokers hang", breaks: func(ctx context.Context, _ string) error {
			return hangs(ctx, 2*unavailable, c.nodes[0], c.nodes[1])
		}},
		{name: "all brokers are killed", breaks: allKilled},
		{name: "partitions are added", breaks: func(_ context.Context, topic string) error {
			return onKafka(brokers, func(admin sarama.ClusterAdmin) error {
				return admin.CreatePartitions(topic, 6, nil, false)
			})
		}},
		{name: "partitions are reassigned", breaks: func(ctx context.Context, topic string) error {
			for _, replicas := range [][]int32{{1, 2}, {2, 3}, {3, 1}, {1, 2, 3}} {
				err := onKafka(brokers, func(admin sarama.ClusterAdmin) error {
					return admin.AlterPartitionReassignments(topic, [][]int32{replicas, replicas, replicas})
				})
				if err = errors.Join(err, sleep(ctx, 3*time.Second)); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "all brokers are killed, with parking, campaigns, drains and the console", breaks: allKilled,
			busy: true},
	}
}

// rolling restarts one node after another.
func rolling(ctx context.Context, nodes []*node) error {
	for _, n := range nodes {
		if err := errors.Join(n.restart(ctx, syscall.SIGTERM), sleep(ctx, 3*time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// kafkaWhole returns nil when each partition has a leader that confirms in time, with enough replicas, and the group of
// consumers, which has the name of the topic, has its coordinator. Confirms are of another topic, as the cluster's are.
func kafkaWhole(brokers []string, topic string) error {
	config := sarama.NewConfig()
	config.Metadata.Retry.Max = 0
	config.Net.DialTimeout, config.Net.ReadTimeout = time.Second, time.Second
	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	partitions, err := client.Partitions(topic)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		has, err := client.InSyncReplicas(topic, p)
		if err == nil && len(has) < half {
			err = sarama.ErrNotEnoughReplicas
		}
		if err == nil {
			_, err = client.GetOffset(topic, p, sarama.OffsetNewest)
		}
		if err != nil {
			return err
		}
	}
	if err := confirmsInTime(client, topic+probes); err != nil {
		return err
	}
	looksAfter, err := client.Coordinator(topic)
	if err != nil {
		return err
	}
	request := &sarama.OffsetFetchRequest{Version: 1, ConsumerGroup: topic}
	request.AddPartition(topic, 0)
	answer, err := looksAfter.FetchOffset(request)
	if err != nil {
		return err
	}
	if block := answer.GetBlock(topic, 0); block == nil || block.Err != sarama.ErrNoError {
		return errors.New("the group's offsets are not there yet")
	}
	return nil
}

// probes is behind the name of a round's topic, in that of another one.
const probes = ".probes"

// confirmsInTime returns nil when a client that is not ours gets a confirm of each partition as fast as the round's
// publishers need it.
func confirmsInTime(from sarama.Client, topic string) error {
	config := sarama.NewConfig()
	config.Producer.RequiredAcks, config.Producer.Return.Successes = sarama.WaitForAll, true
	config.Producer.Partitioner, config.Producer.Retry.Max = sarama.NewManualPartitioner, 0
	var brokers []string
	for _, b := range from.Brokers() {
		brokers = append(brokers, b.Addr())
	}
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer func() { _ = producer.Close() }()
	for turn := range 2 { // the first one also connects
		for partition := range int32(3) {
			began := time.Now()
			if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic,
				Partition: partition}); err != nil {
				return err
			}
			if turn == 1 && time.Since(began) > inTime {
				return errSlow
			}
		}
	}
	return nil
}

// coordinator is the broker that looks after a group of consumers.
func coordinator(brokers []string, group string) (id int, err error) {
	client, err := sarama.NewClient(brokers, nil)
	if err != nil {
		return 0, err
	}
	broker, err := client.Coordinator(group)
	if err == nil {
		id = int(broker.ID()) - 1
	}
	return id, errors.Join(err, client.Close())
}
