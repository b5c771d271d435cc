package chain

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// A router leaves what it knows in the contexts of messages, and Watermill exports only functions that read it. Two
// things must be written too: a message that comes out of a retry stage must look as if it came to its own handler, to
// user code as well; and work on behalf of a message outside of a router needs the names too.
var (
	handlerName    = KeyOf("message.HandlerNameFromCtx", func(c context.Context) { message.HandlerNameFromCtx(c) })
	subscribeTopic = KeyOf("message.SubscribeTopicFromCtx", func(c context.Context) {
		message.SubscribeTopicFromCtx(c)
	})
)

// WritesNames reports whether the names can be written. Without them a message out of a stage would be another handler's,
// and its effects another consumer's.
func WritesNames() bool { return !unread(handlerName) && !unread(subscribeTopic) }

// Within returns ctx with the names that a router leaves in the contexts of a handler's messages.
func Within(ctx context.Context, handler, topic string) context.Context {
	return context.WithValue(WithHandler(ctx, handler), subscribeTopic, topic)
}

// WithHandler returns ctx with the name of a handler.
func WithHandler(ctx context.Context, handler string) context.Context {
	return context.WithValue(ctx, handlerName, handler)
}

// KeyOf returns the key under which get, a function of another module, looks for a value in a context. The key's type
// is private, but each context that get reads sees the key. If get reads none, the key is one that nothing reads.
func KeyOf(name string, get func(context.Context)) any {
	read := &reading{Context: context.Background()}
	get(read)
	if read.key == nil {
		foreign.Note(name, "the key that it reads in a context")
		return new(nothing)
	}
	return read.key
}

// nothing is the type of keys that nothing reads.
type nothing byte

func unread(key any) bool { _, is := key.(*nothing); return is }

// reading is a context that remembers which key was read.
type reading struct {
	context.Context
	key any
}

func (r *reading) Value(key any) any {
	r.key = key
	return nil
}

// added are what brokers and adapters add to a message when they deliver it again, and how its value looks. It is not
// the producer's: with it each delivery would be another message.
var added = map[string]func(value string) bool{
	"x-delivery-count":            isNumber,                                           // RabbitMQ's quorum queues
	"x-acquired-count":            isNumber,                                           // RabbitMQ's quorum queues, from 4.3 on
	"_watermill_amqp_redelivered": func(value string) bool { return value == "true" }, // watermill-amqp/v3
}

// Added reports whether a broker or an adapter added metadata of this name to a delivery. Metadata of another form is
// the producer's.
func Added(name, value string) bool {
	switch len(name) { // most names are told by their length
	case len("x-delivery-count"), len("_watermill_amqp_redelivered"):
		is := added[name]
		return is != nil && is(value)
	}
	return false
}

// Strip removes what brokers and adapters added from metadata.
func Strip(metadata message.Metadata) {
	for name, value := range metadata {
		if Added(name, value) {
			delete(metadata, name)
		}
	}
}

func isNumber(value string) bool {
	for _, digit := range []byte(value) {
		if digit < '0' || digit > '9' {
			return false
		}
	}
	return value != ""
}
