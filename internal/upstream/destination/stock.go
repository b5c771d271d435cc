package destination

import (
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// probe makes sure of topics through a publisher that is no initializer, if it is one that looks for its topic before
// the first message. It calls Publish without messages, so nothing is published.
func probe(pub message.Publisher, topics ...string) error {
	own, known := stockOf(pub)
	if known == nil || known.Creates {
		return nil
	}
	for _, topic := range topics {
		if err := safecall.Call("publisher", func() error { return own.Publish(topic) }); err != nil {
			return fmt.Errorf("topic %q: %w", topic, err)
		}
	}
	return nil
}

// stockOf returns the publisher of Watermill's own modules that pub is or decorates, if its topics come into being or
// it can look for them, and what is known of it, or nil.
func stockOf(pub message.Publisher) (own message.Publisher, found *foreign.Publisher) {
	visit(pub, func(known *foreign.Publisher, inside message.Publisher) bool {
		if known == nil {
			return true
		}
		if known.Creates || inside != nil && known.Looks {
			own, found = inside, known
		}
		return false
	})
	return own, found
}

// Through returns the topic that a Publisher of Watermill's components/forwarder puts its messages into, whatever topic
// they are for, if pub is or decorates one. Otherwise it returns "".
func Through(pub message.Publisher) (topic string) {
	visit(pub, func(known *foreign.Publisher, _ message.Publisher) bool {
		if known != nil {
			topic = known.Into
		}
		return topic == ""
	})
	return topic
}

// visit calls f with what is known of pub and of each publisher inside it, outermost first, until f returns false. The
// publisher is nil if it is in an unexported field.
func visit(pub message.Publisher, f func(known *foreign.Publisher, own message.Publisher) bool) {
	for _, layer := range decorated.Layers(pub) {
		if !f(publisherOf(layer.Value), layer.Publisher) {
			return
		}
		if layer.Value.Kind() != reflect.Struct {
			continue
		}
		for i := range layer.Value.NumField() { // one that is embedded by its pointer is no layer
			field := layer.Value.Field(i)
			if field.Kind() != reflect.Pointer || field.IsNil() {
				continue
			}
			var own message.Publisher
			if field.CanInterface() {
				own, _ = field.Interface().(message.Publisher)
			}
			if !f(publisherOf(field.Elem()), own) {
				return
			}
		}
	}
}

// publisherOf is replaced in a test.
var publisherOf = foreign.PublisherOf
