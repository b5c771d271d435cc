package foreign

import (
	"reflect"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

var publisher = reflect.TypeFor[message.Publisher]()

// Publisher is what is known of a publisher of Watermill's modules.
type Publisher struct {
	// Creates means that a topic comes into being with its first message.
	Creates bool
	// Looks means that a Publish without messages makes sure of the topic.
	Looks bool
	// Unconfirmed means that the broker confirms nothing and keeps nothing.
	Unconfirmed bool
	// Deduplicates is the setting by which the broker drops a message whose id it has had before, or "".
	Deduplicates string
	// Into is the topic that takes all messages, whatever topic they are for, or "".
	Into string
	// Unknown is what the library does not find of a publisher that may lose messages: a setting, or the whole type; or "".
	Unknown string

	lengths func(topic string) int64
}

// MaxLength returns how many messages the publisher keeps of a topic, or 0 if there is no limit.
func (p *Publisher) MaxLength(topic string) int64 {
	if p == nil || p.lengths == nil {
		return 0
	}
	return max(p.lengths(topic), 0)
}

var publishers = []struct {
	row
	read func(view, *Publisher)
}{
	{row{watermillPath, []int{1}, "pubsub/gochannel", "GoChannel"}, func(_ view, p *Publisher) { p.Creates = true }},
	{row{watermillPath, []int{1}, "components/forwarder", "Publisher"}, func(v view, p *Publisher) {
		v.missed = &p.Unknown
		p.Into = v.string("config", "ForwarderTopic")
	}},
	{row{watermillPath + "-redisstream", []int{1}, "pkg/redisstream", "Publisher"}, func(v view, p *Publisher) {
		p.Creates = true
		v.missed = &p.Unknown
		p.lengths = v.redisLength
		p.lengths("")
	}},
	{row{watermillPath + "-nats", []int{2}, "pkg/nats", "Publisher"}, func(v view, p *Publisher) {
		provisions := v.bool("config", "JetStream", "AutoProvision")
		v.missed = &p.Unknown
		p.Unconfirmed = v.bool("config", "JetStream", "Disabled")
		p.Looks = provisions && !p.Unconfirmed
		tracks := "TrackMsgID" // since v2.2.0
		if v.at("config", "JetStream", "TrackMsgId").IsValid() {
			tracks = "TrackMsgId"
		}
		if v.bool("config", "JetStream", tracks) && v.natsHasIDs() {
			p.Deduplicates = "JetStreamConfig." + tracks
		}
	}},
	{row{watermillPath + "-nats", []int{2}, "pkg/jetstream", "Publisher"}, func(v view, p *Publisher) {
		if v.v.NumField() == 5 { // before v2.2.0 it could not track ids
			return
		}
		v.missed = &p.Unknown
		if v.bool("trackMsgID") {
			p.Deduplicates = "PublisherConfig.TrackMessageID"
		}
	}},
	{row{watermillPath + "-googlecloud", []int{1}, "pkg/googlecloud", "Publisher"}, func(v view, p *Publisher) {
		p.Looks = !v.bool("config", "DoNotCheckTopicExistence")
	}},
	{row{watermillPath + "-aws", []int{1}, "sqs", "Publisher"}, func(_ view, p *Publisher) { p.Looks = true }},
}

const watermillPath = "github.com/ThreeDotsLabs/watermill"

// losing are modules with publishers that may lose messages which they took.
var losing = []string{watermillPath + "-nats", watermillPath + "-redisstream"}

// PublisherOf returns what is known of a publisher, given its value behind its pointer, or nil.
func PublisherOf(v reflect.Value) *Publisher {
	for i := range publishers {
		if known := &publishers[i]; known.is(v.Type()) {
			p := &Publisher{}
			known.read(view{row: &known.row, v: v}, p)
			return p
		}
	}
	for _, module := range losing {
		if strings.HasPrefix(v.Type().PkgPath()+"/", module+"/") && reflect.PointerTo(v.Type()).Implements(publisher) {
			return &Publisher{Unknown: v.Type().String()}
		}
	}
	return nil
}

// redisLength reads the lengths that redisstream.PublisherConfig gives to streams.
func (s view) redisLength(topic string) int64 {
	lengths, ok := s.field(func(v reflect.Value) bool { return v.Type() == reflect.TypeFor[map[string]int64]() },
		"config", "Maxlens")
	if ok {
		if own := lengths.MapIndex(reflect.ValueOf(topic)); own.IsValid() {
			return own.Int()
		}
	}
	return s.int("config", "DefaultMaxlen")
}

// natsHasIDs reports whether a nats.Publisher writes the message's id into a header. Gob and JSON have none, and then
// there is nothing to track.
func (s view) natsHasIDs() bool {
	marshaler, ok := s.field(func(v reflect.Value) bool { return v.Kind() == reflect.Interface }, "config", "Marshaler")
	if !ok || marshaler.IsNil() {
		return true
	}
	t := marshaler.Elem().Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() != s.v.Type().PkgPath() || t.Name() != "GobMarshaler" && t.Name() != "JSONMarshaler"
}

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
	{row: row{watermillPath + "-amqp", []int{2, 3}, "pkg/amqp", "Subscriber"},
		otherwise: Subscriber{After: 30 * time.Minute, Session: true}},
	{row{watermillPath + "-sql", []int{3, 4}, "pkg/sql", "Subscriber"},
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
			set := view{row: &known.row, v: v}.duration(known.path...)
			if set > 0 && (!known.most || set < s.After) {
				s.After = set
			}
		}
		return &s
	}
	return nil
}
