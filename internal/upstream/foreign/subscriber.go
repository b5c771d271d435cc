package foreign

import (
	"reflect"
	"time"
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

type knownSubscriber struct {
	row
	otherwise Subscriber
	path      []string // of the field that has another time
	most      bool     // the field can only shorten the time: the broker does not get it
}

var subscribers = []knownSubscriber{
	{row: row{watermillPath, []int{1}, "pubsub/gochannel", "GoChannel"}},
	// The subscriber ends a message's context after AckWaitTimeout. The server has its own AckWait, 30 s unless the
	// consumer says otherwise.
	{row{watermillPath + "-nats", []int{2}, "pkg/nats", "Subscriber"}, Subscriber{After: 30 * time.Second},
		[]string{"config", "AckWaitTimeout"}, true},
	{row{watermillPath + "-nats", []int{2}, "pkg/jetstream", "Subscriber"}, Subscriber{After: 30 * time.Second},
		[]string{"ackWait"}, true},
	// Pending entries are claimed after MaxIdleTime, even by the consumer that has them.
	{row{watermillPath + "-redisstream", []int{1}, "pkg/redisstream", "Subscriber"}, Subscriber{After: time.Minute},
		[]string{"config", "MaxIdleTime"}, false},
	// A rebalance waits for messages without an ack for a minute, and then delivers them to another member.
	{row: row{watermillPath + "-kafka", []int{3}, "pkg/kafka", "Subscriber"},
		otherwise: Subscriber{After: time.Minute, Session: true}},
	// The consumer_timeout of RabbitMQ.
	{row: row{watermillPath + "-amqp", []int{2}, "pkg/amqp", "Subscriber"},
		otherwise: Subscriber{After: 30 * time.Minute, Session: true}},
	{row{watermillPath + "-sql", []int{3}, "pkg/sql", "Subscriber"},
		Subscriber{After: 30 * time.Second, Transaction: true}, []string{"config", "AckDeadline"}, true},
}

// SubscriberOf returns what is known of a subscriber, given its value behind its pointer, or nil.
func SubscriberOf(v reflect.Value) *Subscriber {
	for i := range subscribers {
		known := &subscribers[i]
		if !known.is(v.Type()) {
			continue
		}
		s := known.otherwise
		if known.path != nil {
			set := view{&known.row, v}.duration(known.path...)
			if set > 0 && (!known.most || set < s.After) {
				s.After = set
			}
		}
		return &s
	}
	return nil
}
