package destination

import (
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
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
	foreign.Row
	read func(foreign.View, *Publisher)
}{
	{foreign.RowOf(watermillPath, "pubsub/gochannel", "GoChannel", 1), func(_ foreign.View, p *Publisher) { p.Creates = true }},
	{foreign.RowOf(watermillPath, "components/forwarder", "Publisher", 1), func(v foreign.View, p *Publisher) {
		v.Missed = &p.Unknown
		p.Into = v.Text("config", "ForwarderTopic")
	}},
	{foreign.RowOf(watermillPath+"-redisstream", "pkg/redisstream", "Publisher", 1), func(v foreign.View, p *Publisher) {
		p.Creates = true
		v.Missed = &p.Unknown
		p.lengths = func(topic string) int64 { return redisLength(v, topic) }
		p.lengths("")
	}},
	{foreign.RowOf(watermillPath+"-nats", "pkg/nats", "Publisher", 2), func(v foreign.View, p *Publisher) {
		provisions := v.Bool("config", "JetStream", "AutoProvision")
		v.Missed = &p.Unknown
		p.Unconfirmed = v.Bool("config", "JetStream", "Disabled")
		p.Looks = provisions && !p.Unconfirmed
		tracks := "TrackMsgID" // since v2.2.0
		if v.At("config", "JetStream", "TrackMsgId").IsValid() {
			tracks = "TrackMsgId"
		}
		if v.Bool("config", "JetStream", tracks) && natsHasIDs(v) {
			p.Deduplicates = "JetStreamConfig." + tracks
		}
	}},
	{foreign.RowOf(watermillPath+"-nats", "pkg/jetstream", "Publisher", 2), func(v foreign.View, p *Publisher) {
		if v.Value.NumField() == 5 { // before v2.2.0 it could not track ids
			return
		}
		v.Missed = &p.Unknown
		if v.Bool("trackMsgID") {
			p.Deduplicates = "PublisherConfig.TrackMessageID"
		}
	}},
	{foreign.RowOf(watermillPath+"-googlecloud", "pkg/googlecloud", "Publisher", 1), func(v foreign.View, p *Publisher) {
		p.Looks = !v.Bool("config", "DoNotCheckTopicExistence")
	}},
	{foreign.RowOf(watermillPath+"-aws", "sqs", "Publisher", 1), func(_ foreign.View, p *Publisher) { p.Looks = true }},
}

const watermillPath = "github.com/ThreeDotsLabs/watermill"

// losing are modules with publishers that may lose messages which they took.
var losing = []string{watermillPath + "-nats", watermillPath + "-redisstream"}

// PublisherOf returns what is known of a publisher, given its value behind its pointer, or nil.
func PublisherOf(v reflect.Value) *Publisher {
	for i := range publishers {
		if known := &publishers[i]; known.Is(v.Type()) {
			p := &Publisher{}
			known.read(foreign.View{Row: &known.Row, Value: v}, p)
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
func redisLength(v foreign.View, topic string) int64 {
	lengths, ok := v.Field(func(v reflect.Value) bool { return v.Type() == reflect.TypeFor[map[string]int64]() },
		"config", "Maxlens")
	if ok {
		if own := lengths.MapIndex(reflect.ValueOf(topic)); own.IsValid() {
			return own.Int()
		}
	}
	return v.Int("config", "DefaultMaxlen")
}

// natsHasIDs reports whether a nats.Publisher writes the message's id into a header. Gob and JSON have none, and then
// there is nothing to track.
func natsHasIDs(v foreign.View) bool {
	marshaler, ok := v.Field(foreign.Of(reflect.Interface), "config", "Marshaler")
	if !ok || marshaler.IsNil() {
		return true
	}
	t := marshaler.Elem().Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() != v.Value.Type().PkgPath() || t.Name() != "GobMarshaler" && t.Name() != "JSONMarshaler"
}
