package destination

import (
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/decorated"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// deduplicates is what a publisher may say of its broker. The outermost decorator that has the method decides.
type deduplicates interface {
	Deduplicates() bool
}

const swallowed = "its broker drops a message whose id it has had before, without an error: a message that is " +
	"redriven, goes round in a stage or is dead-lettered again would be lost"

// CheckKeeps returns an error if pub is known to lose messages that it took: its broker drops messages by their ids,
// confirms nothing, or trims one of the topics. Known are publishers that have the method Deduplicates, and those of
// watermill-nats and watermill-redisstream.
func CheckKeeps(pub message.Publisher, topics ...string) error {
	for _, topic := range topics {
		if limit := trims(pub, topic); limit > 0 {
			return fmt.Errorf(trimmed, topic, limit, topic)
		}
	}
	unconfirmed := false
	visit(pub, func(v reflect.Value, _ message.Publisher) bool {
		unconfirmed = isNATS(v) && is(v.FieldByName("config"), "JetStream", "Disabled")
		return !unconfirmed
	})
	if unconfirmed {
		return fmt.Errorf("the publisher %T has JetStreamConfig.Disabled: NATS without JetStream confirms nothing and "+
			"keeps nothing, so a message without a subscriber is lost; leave Disabled out, or give another publisher", pub)
	}
	return checkDuplicates(pub)
}

func checkDuplicates(pub message.Publisher) error {
	for _, layer := range decorated.Layers(pub) {
		if own, ok := layer.Publisher.(deduplicates); ok {
			drops := false
			if err := safecall.Call("Deduplicates", func() error { drops = own.Deduplicates(); return nil }); err != nil {
				return fmt.Errorf("the publisher %s: %w", layer.Type, err)
			}
			if drops {
				return fmt.Errorf("the publisher %s has Deduplicates() true: %s; give one whose broker does not deduplicate by "+
					"the message's id", layer.Type, swallowed)
			}
			return nil
		}
	}
	tracks := false
	visit(pub, func(v reflect.Value, _ message.Publisher) bool {
		tracks = tracksIDs(v)
		return !tracks
	})
	if tracks {
		return fmt.Errorf("the publisher %T has JetStreamConfig.TrackMsgId: %s; set TrackMsgId to false for this "+
			"publisher, or give another one", pub, swallowed)
	}
	return nil
}

// isNATS reports whether v is a nats.Publisher.
func isNATS(v reflect.Value) bool {
	t := v.Type()
	return t.Name() == "Publisher" && t.PkgPath() == "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
}

// tracksIDs reads the configuration of a nats.Publisher, without importing it. Gob and JSON have no header with the
// message's id, and then there is nothing to track.
func tracksIDs(v reflect.Value) bool {
	if !isNATS(v) {
		return false
	}
	config := v.FieldByName("config")
	if config.Kind() != reflect.Struct {
		return false
	}
	if marshaler := config.FieldByName("Marshaler"); marshaler.Kind() == reflect.Interface && !marshaler.IsNil() {
		t := marshaler.Elem().Type()
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if name := t.Name(); t.PkgPath() == v.Type().PkgPath() && (name == "GobMarshaler" || name == "JSONMarshaler") {
			return false
		}
	}
	return is(config, "JetStream", "TrackMsgId")
}
