package connect

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/xdg-go/scram"

	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/settings"
)

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
		wmkafka.PublisherConfig{Sarama: k.secure, Shared: settings.Shared{Logger: logger}})
	return &Broker{pub, func(group string) (Subscriber, error) {
		return wmkafka.NewSubscriber(k.brokers, group,
			wmkafka.SubscriberConfig{Sarama: k.secure, Shared: settings.Shared{Logger: logger}})
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
