package stages

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Source is what the name of a stage topic is made of.
type Source struct {
	// Topic is the topic the handler is subscribed to.
	Topic string
	// Handler is the name of the handler in the router.
	Handler string
	// Delay is that of the stage, or 0 for the re-entry topic of a Store.
	Delay time.Duration
}

// Naming names the topic of a stage. It must give the same name for the same source. Stages whose names are equal
// share a topic: those of one handler must have one delay then, and those of several want Config.SharedTopics.
type Naming func(Source) string

// PerHandler is <topic>.<handler>.retry.5s, and .1m, .10m: one handler's retry is nobody else's, as long
// as no two of topic and handler make one name, as orders and eu.billing do with orders.eu and billing. The name of a handler
// becomes part of a topic's: it must be made of what the broker allows there.
func PerHandler(s Source) string {
	s.Topic += "." + s.Handler
	return PerTopic(s)
}

// PerTopic is <topic>.retry.5s, and .1m, .10m, for topics with one handler, all services counted, or with
// SharedTopics.
func PerTopic(s Source) string {
	return s.Topic + stageSuffix(s.Delay)
}

// stageSuffix is what the names of a stage end with.
func stageSuffix(delay time.Duration) string {
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

// probe finds out at construction what would go wrong with every handler.
func (n Naming) probe(stages []Stage) error {
	named := map[string]time.Duration{}
	for _, stage := range stages {
		topic, err := n.topic(Source{Topic: "orders", Handler: "billing", Delay: stage.Delay})
		if err != nil {
			return err
		}
		if other, ok := named[topic]; ok && other != stage.Delay {
			return fmt.Errorf("stages: %w", sameName(topic, other, stage.Delay))
		}
		named[topic] = stage.Delay
	}
	return nil
}

func sameName(topic string, delay, other time.Duration) error {
	return fmt.Errorf("Config.Naming names %q for delays of %s and %s: in one topic a message would wait behind one that is due later",
		topic, delay, other)
}

func (n Naming) topic(source Source) (topic string, err error) {
	err = safecall.Call("naming function", func() error { topic = n(source); return nil })
	if err != nil {
		return "", fmt.Errorf("stages: Config.Naming: %w", err)
	}
	if topic == "" || topic == source.Topic {
		return "", fmt.Errorf("stages: Config.Naming names %q for the stage of %s of handler %q on topic %q: it must be another topic",
			topic, source.Delay, source.Handler, source.Topic)
	}
	return topic, nil
}

// shared tells whether handlers other than this one have the same topic.
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

// next chooses the stage after the one with this number, and the wait there. False is that none is left, or that the error
// asks for a longer wait than any gets. An error's retry-after is never cut short: in topics it chooses the next stage whose
// delay is not shorter, or the last, where the message then goes round.
func (s *Stages) next(after int, retryAfter time.Duration) (number int, wait time.Duration, ok bool) {
	if after >= len(s.active) || retryAfter > s.config.MaxDelay {
		return 0, 0, false
	}
	number = max(after, 0) + 1
	if s.config.Store == nil {
		for number < len(s.active) && s.active[number-1].Delay < retryAfter {
			number++
		}
	}
	return number, max(s.jittered(s.active[number-1].Delay), retryAfter), true
}

func (s *Stages) jittered(delay time.Duration) time.Duration {
	return delay + time.Duration(rand.Float64()*s.config.Jitter*float64(delay))
}

// nearest is the stage with this number, or where a change of configuration took that away the last one.
func (s *Stages) nearest(number int) int { return min(max(number, 0), len(s.active)) }
