package destination

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/decorated"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// stock is a publisher of Watermill's own modules, by package path without version. The type is Publisher, unless it
// has another name.
type stock struct {
	path, name string
	// creates means that a topic comes into being with its first message.
	creates bool
	// looks reports whether a Publish without messages makes sure of the topic, given the publisher's configuration.
	looks func(config reflect.Value) bool
}

var stocks = []stock{
	{path: "github.com/ThreeDotsLabs/watermill/pubsub/gochannel", name: "GoChannel", creates: true},
	{path: "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream", creates: true},
	{path: "github.com/ThreeDotsLabs/watermill-nats/pkg/nats", looks: func(config reflect.Value) bool {
		return is(config, "JetStream", "AutoProvision") && !is(config, "JetStream", "Disabled")
	}},
	{path: "github.com/ThreeDotsLabs/watermill-googlecloud/pkg/googlecloud", looks: func(config reflect.Value) bool {
		return !is(config, "DoNotCheckTopicExistence")
	}},
	{path: "github.com/ThreeDotsLabs/watermill-aws/sqs", looks: func(reflect.Value) bool { return true }},
}

// probe makes sure of topics through a publisher that is no initializer, if it is one that looks for its topic before
// the first message. It calls Publish without messages, so nothing is published.
func probe(pub message.Publisher, topics ...string) error {
	own, s := stockOf(pub)
	if s == nil || s.creates {
		return nil
	}
	for _, topic := range topics {
		if err := safecall.Call("publisher", func() error { return own.Publish(topic) }); err != nil {
			return fmt.Errorf("topic %q: %w", topic, err)
		}
	}
	return nil
}

// stockOf returns the publisher of Watermill's own modules that pub is or decorates, and what is known of it, or nil.
func stockOf(pub message.Publisher) (own message.Publisher, found *stock) {
	visit(pub, func(v reflect.Value, inside message.Publisher) bool {
		for i, s := range stocks {
			t := v.Type()
			if t.Name() != or(s.name, "Publisher") || unversioned(t.PkgPath()) != s.path {
				continue
			}
			if s.creates || inside != nil && v.Kind() == reflect.Struct && s.looks(v.FieldByName("config")) {
				own, found = inside, &stocks[i]
			}
			return false
		}
		return true
	})
	return own, found
}

// visit calls f with pub and each publisher inside it, outermost first, until f returns false. The publisher is nil if
// it is in an unexported field.
func visit(pub message.Publisher, f func(v reflect.Value, own message.Publisher) bool) {
	for _, layer := range decorated.Layers(pub) {
		if !f(layer.Value, layer.Publisher) {
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
			if !f(field.Elem(), own) {
				return
			}
		}
	}
}

// is reports whether the bool at a path of fields is there and true.
func is(v reflect.Value, path ...string) bool {
	for _, name := range path {
		if v.Kind() != reflect.Struct {
			return false
		}
		v = v.FieldByName(name)
	}
	return v.Kind() == reflect.Bool && v.Bool()
}

func or(name, otherwise string) string {
	if name != "" {
		return name
	}
	return otherwise
}

// unversioned removes the element of a major version from an import path.
func unversioned(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) > 3 && len(parts[3]) > 1 && parts[3][0] == 'v' && strings.Trim(parts[3][1:], "0123456789") == "" {
		parts = append(parts[:3], parts[4:]...)
	}
	return strings.Join(parts, "/")
}
