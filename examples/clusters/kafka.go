package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

const (
	kafkaPort = 21092 // and the next five
	half      = 2     // replicas that must have a record
)

const kafkaConfig = `process.roles=broker,controller
node.id=%[1]d
controller.quorum.voters=1@127.0.0.1:21095,2@127.0.0.1:21096,3@127.0.0.1:21097
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:%[2]d,CONTROLLER://127.0.0.1:%[3]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[2]d
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs=%[4]s/data
auto.create.topics.enable=false
default.replication.factor=3
min.insync.replicas=2
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=6000
replica.lag.time.max.ms=5000
offsets.topic.replication.factor=3
offsets.topic.num.partitions=5
`

// kafkaCluster starts three brokers, each of which is a controller too.
func kafkaCluster(ctx context.Context, folder string) (*cluster, error) {
	c := &cluster{name: "kafka", origin: wmkafka.Origin}
	jars, err := kafkaJars()
	if err != nil {
		return nil, err
	}
	if c.database, err = services.Lookup("postgres"); err != nil {
		return nil, err
	}
	var brokers []string
	for i := range 3 {
		port := kafkaPort + i
		brokers = append(brokers, fmt.Sprintf("127.0.0.1:%d", port))
		n, err := kafkaNode(folder, jars, i+1, port)
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, n)
		if err := n.start(); err != nil {
			return c, err
		}
	}
	for _, n := range c.nodes {
		if err := n.ready(ctx); err != nil {
			return c, err
		}
	}
	c.prepare = func(_ context.Context, topic string) error { return makeTopic(brokers, topic) }
	c.publisher = func() (message.Publisher, error) { return wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{}) }
	c.subscribe = func(topic string) (message.Subscriber, error) {
		return wmkafka.NewSubscriber(brokers, topic, wmkafka.SubscriberConfig{InFlight: 8,
			Sarama: func(config *sarama.Config) { config.Consumer.Group.Session.Timeout = 10 * time.Second }})
	}
	leads := func(topic string) (led *node, err error) {
		return led, onKafka(brokers, func(admin sarama.ClusterAdmin) error {
			topics, err := admin.DescribeTopics([]string{topic})
			if err != nil || len(topics) == 0 || len(topics[0].Partitions) == 0 {
				return errors.Join(err, errors.New("the topic has no partitions"))
			}
			led = c.nodes[max(topics[0].Partitions[0].Leader, 1)-1]
			return nil
		})
	}
	away := 8 * time.Second
	c.rounds = []round{
		{"a leader is killed", func(ctx context.Context, topic string) error {
			led, err := leads(topic)
			if err != nil {
				return err
			}
			return led.crashed(ctx, away)
		}},
		{"each broker restarts", func(ctx context.Context, _ string) error {
			for _, n := range c.nodes {
				if err := errors.Join(n.restart(ctx, syscall.SIGTERM), sleep(ctx, 3*time.Second)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"a leader hangs", func(ctx context.Context, topic string) error {
			led, err := leads(topic)
			if err != nil {
				return err
			}
			return hangs(ctx, 2*away, led)
		}},
		{"two of three brokers hang", func(ctx context.Context, _ string) error {
			return hangs(ctx, 2*away, c.nodes[0], c.nodes[1])
		}},
		{"all brokers are killed", func(ctx context.Context, _ string) (err error) {
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
		}},
		{"partitions are added", func(_ context.Context, topic string) error {
			return onKafka(brokers, func(admin sarama.ClusterAdmin) error { return admin.CreatePartitions(topic, 6, nil, false) })
		}},
	}
	return c, nil
}

func onKafka(brokers []string, do func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(brokers, nil)
	if err != nil {
		return err
	}
	return errors.Join(do(admin), admin.Close())
}

func makeTopic(brokers []string, topic string) error {
	return onKafka(brokers, func(admin sarama.ClusterAdmin) error {
		return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: -1}, false)
	})
}

// kafkaJars are those of the test servers.
func kafkaJars() (string, error) {
	folder := os.Getenv("SPILLWAY_KAFKA_JARS")
	if folder == "" {
		folder = os.Getenv("SPILLWAY_SERVICES_DIR")
	}
	if folder == "" {
		folder = fmt.Sprintf("/var/tmp/spillway-services-%d", os.Getuid())
	}
	found, err := filepath.Glob(filepath.Join(folder, "kafka-?.?.?"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("no Kafka in %s: run make services", folder)
	}
	return found[len(found)-1], nil
}

func kafkaNode(parent, jars string, id, port int) (*node, error) {
	folder, err := folderFor(parent, fmt.Sprint("kafka-", id), "")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "server.properties")
	if err := os.WriteFile(file, fmt.Appendf(nil, kafkaConfig, id, port, port+3, folder), 0o600); err != nil {
		return nil, err
	}
	java := []string{"java", "-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-Djava.io.tmpdir=" + folder, "-cp", filepath.Join(jars, "*")}
	format := append(append([]string{}, java...), "kafka.tools.StorageTool", "format", "-t", "c3BpbGx3YXktc2VydmljZQ", "-c", file)
	if out, err := exec.Command(format[0], format[1:]...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format the data of Kafka: %w\n%s", err, out)
	}
	return &node{name: fmt.Sprint("kafka-", id), folder: folder, command: append(java, "kafka.Kafka", file),
		answers: func(context.Context) error {
			client, err := sarama.NewClient([]string{fmt.Sprintf("127.0.0.1:%d", port)}, nil)
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			if n := len(client.Brokers()); n < half {
				return fmt.Errorf("%d brokers", n)
			}
			return nil
		}}, nil
}
