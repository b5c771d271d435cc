package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
)

// broker is where the messages of a run come from, and its outputs go.
type broker interface {
	// create makes the source and the outputs.
	create() error
	// produce puts messages into the source. In it those of a key are in the order of their numbers.
	produce(from, to int) error
	// consume returns what a consumer needs, and completes its configuration. It is called in the consumer's process.
	consume(*spillway.Config) (message.Subscriber, message.Publisher, error)
	// partition is that of a message, within which its key has an order.
	partition(*message.Message) int
	// behind is how many messages the consumers have not committed.
	behind() (int, error)
	// published calls each with the outputs: those of a key in the order in which they were published.
	published(each func(out output) error) error
	remove() error
}

// grower is a broker that can add partitions in the middle of a run.
type grower interface{ grow() error }

// output is what a handler published.
type output struct{ id, lane, number string }

// brokers makes each, for a run.
var brokers = map[string]func(*plan) (broker, error){"kafka": newKafka, "tables": newTables, "rabbitmq": newRabbit}

func brokerOf(p *plan) (broker, error) {
	if make := brokers[p.Broker]; make != nil {
		return make(p)
	}
	return nil, fmt.Errorf("-broker %s: give one of %v", p.Broker, slices.Sorted(maps.Keys(brokers)))
}
