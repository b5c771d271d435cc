package main

import (
	"errors"
	"net/url"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// onRabbitMQ is a site with quorum queues.
func onRabbitMQ(s *site) {
	s.origin = wmamqp.Origin
	s.publisher = func() (publisher, error) {
		return wmamqp.NewPublisher(s.Address, wmamqp.PublisherConfig{Shared: observe.Shared{Logger: s.logger}})
	}
	s.subscriber = func(_ string, inFlight int) (subscriber, error) {
		config := wmamqp.SubscriberConfig{InFlight: inFlight, Shared: observe.Shared{Logger: s.logger}}
		config.AMQP.Queue.Arguments = amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
		return wmamqp.NewSubscriber(s.Address, config)
	}
	// The headers of a message travel in one frame: what is as large as it can be is they.
	s.oversized = func(msg *message.Message, less int) { msg.Metadata.Set("pad", strings.Repeat("x", 128<<10-less)) }
	s.refused = func(id string) *message.Message {
		msg := message.NewMessage("", []byte(id))
		msg.Metadata.Set("pad", strings.Repeat("x", 200<<10))
		return msg
	}

	s.create = func() error {
		pub, err := s.publisher()
		if err != nil {
			return err
		}
		return errors.Join(pub.InitializeTopics(append([]string{s.Topic, s.outputs()}, s.deadLetters()...)...),
			pub.Close())
	}
	s.remove = func() error {
		conn, err := amqp091.Dial(s.Address)
		if err != nil {
			return err
		}
		channel, err := conn.Channel()
		if err == nil {
			for _, topic := range s.topics() {
				_, failed := channel.QueueDelete(topic, false, false, false) // of one that is not there it is none
				err = errors.Join(err, failed)
			}
		}
		return errors.Join(err, conn.Close())
	}
}

func hostAMQP(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errAMQP
	}
	return u.Host, nil
}

// it holds a password
var errAMQP = errors.New("the address of RabbitMQ is no AMQP URL: let SPILLWAY_AMQP be amqp://user:password@host:port/")

// viaAMQP is an address with another host and port.
func viaAMQP(address, host string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errAMQP
	}
	u.Host = host
	return u.String(), nil
}
