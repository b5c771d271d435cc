package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

const (
	kafkaPort = 21092 // and the next eight
	half      = 2     // replicas that must have a record
)

const kafkaConfig = `process.roles=broker,controller
node.id=%[1]d
controller.quorum.voters=1@kafka-1:21095,2@kafka-2:21096,3@kafka-3:21097
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:%[2]d,CONTROLLER://127.0.0.1:%[3]d,BETWEEN://127.0.0.1:%[4]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[2]d,CONTROLLER://kafka-%[1]d:%[3]d,BETWEEN://kafka-%[1]d:%[4]d
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,BETWEEN:PLAINTEXT
inter.broker.listener.name=BETWEEN
log.dirs=%[5]s/data
auto.create.topics.enable=false
default.replication.factor=3
min.insync.replicas=2
group.initial.rebalance.delay.ms=0
initial.broker.registration.timeout.ms=180000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=6000
replica.lag.time.max.ms=5000
offsets.topic.replication.factor=3
offsets.topic.num.partitions=5
`

// kafkaCluster starts three brokers, each of which is a controller too.
func kafkaCluster(ctx context.Context, folder string) (*cluster, error) {
	c := &cluster{name: "kafka"}
	jars, err := kafkaJars()
	if err != nil {
		return nil, err
	}
	if c.databases, err = testPostgres(); err != nil {
		return nil, err
	}
	between, err := newLinks(3, kafkaPort+3, kafkaPort+6)
	if err != nil {
		return nil, err
	}
	c.closing = append(c.closing, between.close)
	var brokers []string
	for i := range 3 {
		port := kafkaPort + i
		brokers = append(brokers, fmt.Sprintf("127.0.0.1:%d", port))
		n, err := kafkaNode(folder, jars, between, i, port)
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
	kafkaTopics(c, brokers)
	c.whole = func(_ context.Context, topic string) error { return kafkaWhole(brokers, topic) }
	c.rounds = kafkaRounds(c, brokers, between)
	return c, nil
}

// kafkaTopics has the messages of a cluster come from Kafka.
func kafkaTopics(c *cluster, brokers []string) {
	c.keyed, c.origin = true, wmkafka.Origin
	c.prepare = func(_ context.Context, topic string) error {
		return onKafka(brokers, func(admin sarama.ClusterAdmin) error {
			all := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: -1}
			return errors.Join(admin.CreateTopic(topic, all, false), admin.CreateTopic(topic+probes, all, false))
		})
	}
	keys := kafka.NewWithPartitioningMarshaler(func(_ string, msg *message.Message) (string, error) {
		return msg.Metadata.Get(accountKey), nil
	})
	c.publisher = func() (message.Publisher, error) {
		return wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{Marshaler: wmkafka.Marshaler{Inner: keys}})
	}
	c.subscribe = func(topic string) (message.Subscriber, error) {
		return wmkafka.NewSubscriber(brokers, topic, wmkafka.SubscriberConfig{InFlight: 8})
	}
}

func onKafka(brokers []string, do func(sarama.ClusterAdmin) error) error {
	config := sarama.NewConfig()
	config.Version = sarama.V2_6_0_0 // which can reassign partitions
	admin, err := sarama.NewClusterAdmin(brokers, config)
	if err != nil {
		return err
	}
	return errors.Join(do(admin), admin.Close())
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

func kafkaNode(parent, jars string, between *links, i, port int) (*node, error) {
	id := i + 1
	folder, err := folderFor(parent, fmt.Sprint("kafka-", id), "")
	if err != nil {
		return nil, err
	}
	hosts, err := between.hosts(folder, "kafka", i)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "server.properties")
	if err := os.WriteFile(file, fmt.Appendf(nil, kafkaConfig, id, port, port+3, port+6, folder), 0o600); err != nil {
		return nil, err
	}
	java := []string{"java", "-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Djava.io.tmpdir=" + folder, "-Djdk.net.hosts.file=" + hosts, "-cp", filepath.Join(jars, "*")}
	format := append(append([]string{}, java...), "kafka.tools.StorageTool", "format", "-t", "c3BpbGx3YXktc2VydmljZQ",
		"-c", file)
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
