package main

import (
	"encoding/binary"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// payload is what the messages of a topic look like. All begin with a number of four bytes.
type payload struct {
	size, headers int
	record        func(topic string) func(number int) (*sarama.ProducerMessage, error)
}

// payloads are a message that is as small as can be, of a producer other than Watermill, and the message of all
// figures, whose id is one header more.
var payloads = []payload{
	{7, 0, func(topic string) func(int) (*sarama.ProducerMessage, error) {
		return func(number int) (*sarama.ProducerMessage, error) {
			value := binary.BigEndian.AppendUint32(make([]byte, 0, 7), uint32(number))
			return &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value[:7])}, nil
		}
	}},
	{1024, 5, func(topic string) func(int) (*sarama.ProducerMessage, error) {
		return func(number int) (*sarama.ProducerMessage, error) {
			return wmkafka.Marshaler{}.Marshal(topic, harness.Numbered(number))
		}
	}},
}
