package hold

import (
	"reflect"
	"time"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// Subscriber is what is known of a subscriber of Watermill's modules.
type Subscriber struct {
	// After is the time after which a message without an ack is delivered again. 0 means never.
	After time.Duration
	// Session means that the end of a session redelivers, and After bounds how long a message may delay that end.
	Session bool
	// Transaction means that a message holds a transaction open, in which its handler can write.
	Transaction bool
}

const watermillPath = "github.com/ThreeDotsLabs/watermill"

type knownSubscriber struct {
	foreign.Row
	otherwise Subscriber
	path      []string // of the field that has another time
	most      bool     // the field can only shorten the time: the broker does not get it
}

var subscribers = []knownSubscriber{
	{Row: foreign.RowOf(watermillPath, "pubsub/gochannel", "GoChannel", 1)},
	// The subscriber ends a message's context after AckWaitTimeout. The server has its own AckWait, 30 s unless the
	// consumer says otherwise.
	{foreign.RowOf(watermillPath+"-nats", "pkg/nats", "Subscriber", 2), Subscriber{After: 30 * time.Second},
		[]string{"config", "AckWaitTimeout"}, true},
	{foreign.RowOf(watermillPath+"-nats", "pkg/jetstream", "Subscriber", 2), Subscriber{After: 30 * time.Second},
		[]string{"ackWait"}, true},
	// Pending entries are claimed after MaxIdleTime, even by the consumer that has them.
	{foreign.RowOf(watermillPath+"-redisstream", "pkg/redisstream", "Subscriber", 1), Subscriber{After: time.Minute},
		[]string{"config", "MaxIdleTime"}, false},
	// A rebalance waits for messages without an ack for a minute, and then delivers them to another member.
	{Row: foreign.RowOf(watermillPath+"-kafka", "pkg/kafka", "Subscriber", 3),
		otherwise: Subscriber{After: time.Minute, Session: true}},
	// The consumer_timeout of RabbitMQ.
	{Row: foreign.RowOf(watermillPath+"-amqp", "pkg/amqp", "Subscriber", 2, 3),
		otherwise: Subscriber{After: 30 * time.Minute, Session: true}},
	{foreign.RowOf(watermillPath+"-sql", "pkg/sql", "Subscriber", 3, 4),
		Subscriber{After: 30 * time.Second, Transaction: true}, []string{"config", "AckDeadline"}, true},
}

// SubscriberOf returns what is known of a subscriber, given its value behind its pointer, or nil.
func SubscriberOf(v reflect.Value) *Subscriber {
	for i := range subscribers {
		known := &subscribers[i]
		if !known.Is(v.Type()) {
			continue
		}
		s := known.otherwise
		if known.path != nil {
			set := foreign.View{Row: &known.Row, Value: v}.Duration(known.path...)
			if set > 0 && (!known.most || set < s.After) {
				s.After = set
			}
		}
		return &s
	}
	return nil
}
