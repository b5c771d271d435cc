// Package connect opens what the command redrive works on: the database of the dead letters, by a URL, and brokers.
//
//	postgres://user:password@host:5432/shop     PostgreSQL
//	mysql://user:password@host:3306/shop        MySQL, MariaDB (mariadb:// too)
//	sqlite:///var/lib/shop/shop.db              SQLite; sqlite:shop.db is in the current folder
//
// Looking changes nothing: Database makes no file, no table and no upgrade. An upgrade by a newer command would lock
// out the services of the earlier release when they start again. Require compares what is there with what this command
// knows.
package connect

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/xdg-go/scram"

	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

const brokerForms = "use kafka://host:9092,host:9092, amqp://user:password@host:5672,host:5672/ or sql (the " +
	"tables of watermill-sql in --db)"

// Subscriber is a subscriber that knows how much waits in a topic.
type Subscriber interface {
	message.Subscriber
	Backlog(ctx context.Context, topic string) (int, error)
}

// Broker is a connection to a broker. Its publisher confirms what it takes.
type Broker struct {
	message.Publisher
	subscriber func(group string) (Subscriber, error)
}

// Subscriber returns a subscriber of a consumer group. A queue of RabbitMQ knows no groups.
func (b *Broker) Subscriber(group string) (Subscriber, error) { return b.subscriber(group) }

// Open connects to a broker by its URL. db opens the database, for the broker that is one.
func Open(ctx context.Context, address string, db func(context.Context) (*sql.DB, error),
	logger watermill.LoggerAdapter) (*Broker, error) {
	broker, err := open(ctx, address, db, logger)
	if err != nil {
		return nil, fmt.Errorf("--broker: %w", withoutPassword(err, address))
	}
	return broker, nil
}

func open(ctx context.Context, address string, db func(context.Context) (*sql.DB, error),
	logger watermill.LoggerAdapter) (*Broker, error) {
	switch scheme, _, _ := strings.Cut(address, ":"); scheme {
	case "":
		return nil, errors.New("it is empty: give the URL of the broker, or set SPILLWAY_BROKER; " + brokerForms)
	case "kafka":
		return openKafka(address, logger)
	case "amqp", "amqps":
		pub, err := wmamqp.NewPublisher(address, wmamqp.PublisherConfig{Shared: observe.Shared{Logger: logger}})
		return &Broker{pub, func(string) (Subscriber, error) {
			return wmamqp.NewSubscriber(address, wmamqp.SubscriberConfig{Shared: observe.Shared{Logger: logger}})
		}}, err
	case "sql":
		db, err := db(ctx)
		if err != nil {
			return nil, err
		}
		pub, err := wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{Shared: observe.Shared{Logger: logger}})
		return &Broker{pub, func(group string) (Subscriber, error) {
			return wmsql.NewSubscriber(ctx, db,
				wmsql.SubscriberConfig{ConsumerGroup: group, Shared: observe.Shared{Logger: logger}})
		}}, err
	}
	return nil, errors.New("the scheme is unknown: " + brokerForms)
}

// kafka is a URL of Kafka: kafka://user:password@host:9092,host:9092?tls=true&sasl=scram-sha-512.
type kafka struct {
	brokers        []string
	user, password string
	mechanism      string
	tls            *tls.Config // nil without TLS
}

func openKafka(address string, logger watermill.LoggerAdapter) (*Broker, error) {
	k, err := kafkaOf(address)
	if err != nil {
		return nil, err
	}
	pub, err := wmkafka.NewPublisher(k.brokers,
		wmkafka.PublisherConfig{Sarama: k.secure, Shared: observe.Shared{Logger: logger}})
	return &Broker{pub, func(group string) (Subscriber, error) {
		return wmkafka.NewSubscriber(k.brokers, group,
			wmkafka.SubscriberConfig{Sarama: k.secure, Shared: observe.Shared{Logger: logger}})
	}}, err
}

func kafkaOf(address string) (*kafka, error) {
	_, rest, _ := strings.Cut(address, ":")
	rest, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	user, hosts := "", rest
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, hosts = rest[:at], rest[at+1:]
	}
	k := &kafka{brokers: strings.Split(strings.TrimRight(hosts, "/"), ",")}
	for i, host := range k.brokers {
		if host == "" {
			return nil, errors.New("a host is missing: " + brokerForms)
		}
		if !strings.Contains(host, ":") {
			k.brokers[i] = host + ":9092"
		}
	}
	name, password, _ := strings.Cut(user, ":")
	var err, errPassword error
	k.user, err = url.PathUnescape(name)
	if k.password, errPassword = url.PathUnescape(password); err != nil || errPassword != nil {
		return nil, errors.New("the user or the password has a % that begins no escape: write % as %25, @ as %40, : as %3A")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read: %w", err)
	}
	if k.tls, err = tlsOf(values); err != nil {
		return nil, err
	}
	if err := k.sasl(values); err != nil {
		return nil, err
	}
	for key := range values { // a misspelt tls would send the password in the clear
		return nil, fmt.Errorf("the URL has %q: for Kafka there are tls, ca, cert, key and sasl", key)
	}
	return k, nil
}

// sasl reads the mechanism, and takes it out of values.
func (k *kafka) sasl(values url.Values) error {
	asked, given := values["sasl"]
	delete(values, "sasl")
	switch {
	case len(asked) > 1:
		return fmt.Errorf("the URL has sasl=%q: give it once", asked)
	case given && k.user == "":
		return fmt.Errorf("the URL has sasl=%s and no user: give kafka://user:password@host:9092", asked[0])
	case k.user == "":
		return nil
	case !given:
		asked = []string{sarama.SASLTypePlaintext}
	}
	switch k.mechanism = strings.ToUpper(asked[0]); k.mechanism {
	case sarama.SASLTypePlaintext, sarama.SASLTypeSCRAMSHA256, sarama.SASLTypeSCRAMSHA512:
		return nil
	}
	return fmt.Errorf("the URL has sasl=%s: give plain, scram-sha-256 or scram-sha-512", asked[0])
}

func (k *kafka) secure(config *sarama.Config) {
	config.Net.TLS.Enable, config.Net.TLS.Config = k.tls != nil, k.tls
	if k.user == "" {
		return
	}
	sasl := &config.Net.SASL
	sasl.Enable, sasl.User, sasl.Password, sasl.Mechanism = true, k.user, k.password, sarama.SASLMechanism(k.mechanism)
	switch k.mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		sasl.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case sarama.SASLTypeSCRAMSHA512:
		sasl.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	}
}

// scramClient is a sarama.SCRAMClient.
type scramClient struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	c.ClientConversation = client.NewConversation()
	return nil
}
