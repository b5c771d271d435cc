package stages

import (
	"fmt"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Source is what a Naming makes the name of a stage topic from.
type Source struct {
	// Topic is the topic that the handler subscribes to.
	Topic string
	// Handler is the handler's name in the router.
	Handler string
	// Delay is that of the stage, or 0 for the re-entry topic of a Store.
	Delay time.Duration
}

// Naming names the topic of a stage. It must return the same name for the same source. Stages with equal names share a topic:
// stages of one handler must then have the same delay, and stages of several handlers need Config.SharedTopics.
type Naming func(Source) string

// PerHandler names stage topics <topic>.<handler>.retry.5s, so that each handler has stage topics of its own. The handler's name
// becomes part of a topic's name: use only characters that the broker allows there. Two pairs of topic and handler must not join
// to one name, as orders and eu.billing do with orders.eu and billing.
func PerHandler(s Source) string {
	s.Topic += "." + s.Handler
	return PerTopic(s)
}

// PerTopic names stage topics <topic>.retry.5s. Use it for topics that one handler of all services reads, or with SharedTopics.
func PerTopic(s Source) string {
	return s.Topic + suffix(s.Delay)
}

// suffix is what the names of a stage end with: its topic, its group, and its handler in the router.
func suffix(delay time.Duration) string {
	if delay == 0 {
		return ".retry"
	}
	return ".retry." + shortened(delay)
}

// shortened writes 1m where time.Duration writes 1m0s.
func shortened(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = text[:len(text)-2]
	}
	if strings.HasSuffix(text, "h0m") {
		text = text[:len(text)-2]
	}
	return text
}

// check finds at construction what would go wrong for every handler.
func (n Naming) check(stages []Stage) error {
	named := map[string]time.Duration{}
	for _, stage := range stages {
		topic, err := n.topic(Source{Topic: "orders", Handler: "billing", Delay: stage.Delay})
		if err != nil {
			return fmt.Errorf("stages: %w", err)
		}
		if other, ok := named[topic]; ok && other != stage.Delay {
			return fmt.Errorf("stages: %w", sameName(topic, other, stage.Delay))
		}
		named[topic] = stage.Delay
	}
	return nil
}

func sameName(topic string, delay, other time.Duration) error {
	return fmt.Errorf("Config.Naming names %q for delays of %s and %s: in one topic a message would wait behind one that is due later; "+
		"give each delay a name of its own", topic, delay, other)
}

func (n Naming) topic(source Source) (topic string, err error) {
	err = safecall.Call("naming function", func() error { topic = n(source); return nil })
	if err != nil {
		return "", fmt.Errorf("Config.Naming: %w", err)
	}
	if topic == "" || topic == source.Topic {
		return "", fmt.Errorf("Config.Naming names %q for the stage of %s of handler %q on topic %q: it must be another topic",
			topic, source.Delay, source.Handler, source.Topic)
	}
	return topic, nil
}

// shared reports whether a source with another topic or handler has the same stage topic.
func (n Naming) shared(source Source, topic string) bool {
	other := source
	other.Handler += "\x01other"
	named, err := n.topic(other)
	if err == nil && named == topic {
		return true
	}
	other = source
	other.Topic += "\x01other"
	named, err = n.topic(other)
	return err == nil && named == topic
}
