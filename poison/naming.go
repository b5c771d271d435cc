package poison

import (
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Source is what a Naming makes the name of a dead-letter topic from.
type Source struct {
	// Topic is the topic the handler is subscribed to.
	Topic string
	// Handler is the name of the handler in the router.
	Handler string
	// Class is the class of the failure; ClassInvalid has a topic of its own by default.
	Class classify.Class
}

// Naming names the dead-letter topic of a source. It is called for every letter and must return the same name for the
// same source. An empty name, the source's own topic (a loop) and a panic are not usable. NewQueue tries the Naming with a
// source of its own and returns an error for such a name. For a later source, DefaultNaming is used and an error is logged.
type Naming func(Source) string

// DefaultNaming returns <topic>.invalid for invalid messages and <topic>.dlq for all others. The name of a live topic must not
// end so, nor with .parked or .quarantine: messages that fail in its consumer would be parked.
func DefaultNaming(s Source) string {
	if s.Class == classify.ClassInvalid {
		return s.Topic + ".invalid"
	}
	return s.Topic + ".dlq"
}

// SuffixNaming names <topic><suffix> for every class. A topic with this ending counts as a dead-letter topic, so the name of a
// live topic must not end with suffix: messages that fail in its consumer would be parked.
func SuffixNaming(suffix string) Naming {
	return func(s Source) string { return s.Topic + suffix }
}

// FixedTopic names one dead-letter topic for all sources and classes, invalid messages included: the letters of a whole
// service, or of one handler that has a Queue of its own. The letters that fail in the consumer of topic go to
// <topic>.parked, and those that were redriven too often to <topic>.quarantine, as with every Naming.
func FixedTopic(topic string) Naming {
	return func(Source) string { return topic }
}

// PulsarNaming names <topic>-<subscription>-DLQ, as Apache Pulsar's clients do.
func PulsarNaming(subscription string) Naming {
	return func(s Source) string { return s.Topic + "-" + subscription + "-DLQ" }
}

// PerHandlerNaming returns <topic>.<handler>.dlq, or .invalid, so that two handlers of one topic keep their letters apart.
func PerHandlerNaming(s Source) string {
	s.Topic += "." + s.Handler
	return DefaultNaming(s)
}

const (
	parkedSuffix     = ".parked"
	quarantineSuffix = ".quarantine"
)

// ParkedTopic names where a message of a dead-letter topic goes if its consumer fails or refuses it.
func ParkedTopic(topic string) string { return topic + parkedSuffix }

// QuarantineTopic names where a letter of a dead-letter topic goes after the maximum of redrives.
func QuarantineTopic(topic string) string { return topic + quarantineSuffix }

// probe finds out at construction what would go wrong with every message.
func (n Naming) probe() error {
	for _, class := range []classify.Class{classify.ClassPermanent, classify.ClassInvalid} {
		source := Source{Topic: "orders", Handler: "billing", Class: class}
		name, err := n.call(source)
		if err != nil {
			return fmt.Errorf("poison: QueueConfig.Naming: %w", err)
		}
		if name == "" || name == source.Topic {
			return fmt.Errorf("poison: QueueConfig.Naming names %q for the source topic %q: it must be another topic", name, source.Topic)
		}
	}
	return nil
}

func (n Naming) call(s Source) (name string, err error) {
	err = safecall.Call("naming function", func() error { name = n(s); return nil })
	return name, err
}

// topic is the name for s that can be used, whatever the naming function does.
func (n Naming) topic(s Source, logger watermill.LoggerAdapter) string {
	name, err := n.call(s)
	if err == nil && name != "" && name != s.Topic {
		return name
	}
	fallback := DefaultNaming(s)
	logger.Error("QueueConfig.Naming returned no usable dead-letter topic; the default name is used", err,
		watermill.LogFields{"topic": s.Topic, "handler": s.Handler, "named": name, "used": fallback})
	return fallback
}

// covers reports whether topic is a dead-letter topic itself, by its ending or because the naming gives every source the
// same name.
func (n Naming) covers(topic string) bool {
	if strings.HasSuffix(topic, parkedSuffix) || strings.HasSuffix(topic, quarantineSuffix) {
		return true
	}
	const probe, handler = "t", "\x01handler\x01"
	for class := range classify.ClassAborted {
		name, err := n.call(Source{Topic: probe, Handler: handler, Class: class})
		if err != nil {
			continue
		}
		suffix, adds := strings.CutPrefix(name, probe)
		if i := strings.LastIndex(suffix, handler); i >= 0 {
			suffix = suffix[i+len(handler):]
		}
		if name == topic || adds && suffix != "" && strings.HasSuffix(topic, suffix) {
			return true
		}
	}
	return false
}
