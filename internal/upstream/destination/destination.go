// Package destination makes sure, through a publisher, that topics exist before the first message.
package destination

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// initializer is poison.Initializer.
type initializer interface {
	InitializeTopics(topics ...string) error
}

// SourceInitializer is a poison.Initializer that makes topics to suit their source.
type SourceInitializer interface {
	InitializeTopicsFor(source string, topics ...string) error
}

// Initialize makes sure that the topics exist, which take what comes from source, if pub or a publisher inside it is a
// SourceInitializer or a poison.Initializer. It returns an error if pub hides one, or trims a topic. Of a
// publisher of Watermill's own modules that looks for its topics, it calls Publish without messages. Of any other
// publisher it assumes that the topics exist.
func Initialize(pub message.Publisher, source string, topics ...string) error {
	if safecall.IsNil(pub) {
		return errors.New("poison: the publisher is nil: it can make no topics")
	}
	if err := checkTrims(pub, topics...); err != nil {
		return err
	}
	if initialize, _ := initializerOf(pub); initialize != nil {
		return initialize(source, topics...)
	}
	if err := Check(pub); err != nil {
		return err
	}
	return probe(pub, topics...)
}

// initializerOf returns what makes topics, of the outermost publisher inside pub that can; or else the type of one that
// is hidden.
func initializerOf(pub message.Publisher) (initialize func(source string, topics ...string) error, hidden reflect.Type) {
	for _, layer := range decorated.Layers(pub) {
		switch own := layer.Inside.(type) {
		case SourceInitializer:
			return own.InitializeTopicsFor, nil
		case initializer:
			return func(_ string, topics ...string) error { return own.InitializeTopics(topics...) }, nil
		case nil:
			if hidden == nil && (layer.Type.Implements(reflect.TypeFor[SourceInitializer]()) ||
				layer.Type.Implements(reflect.TypeFor[initializer]())) {
				hidden = layer.Type
			}
		}
	}
	return nil, hidden
}

// Notice logs, once, that topics could not be made sure of. The zero value is ready to use.
type Notice struct{ once sync.Once }

// Log logs that pub may have no topics of what, if pub can neither make nor find them.
func (n *Notice) Log(logger watermill.LoggerAdapter, pub message.Publisher, what string, topics ...string) {
	initialize, _ := initializerOf(pub)
	if _, s := stockOf(pub); s != nil || initialize != nil {
		return
	}
	n.once.Do(func() {
		eventNoInitializer.Write(logger, nil,
			logging.Fields{"of": what, "publisher": fmt.Sprintf("%T", pub), "topics": topics})
	})
}

// Check returns an error if pub hides an initializer, so that topics would not be made.
func Check(pub message.Publisher) error {
	if with, ok := pub.(interface{ CheckInitializer() error }); ok { // of poison.WithInitializer
		return with.CheckInitializer()
	}
	_, hidden := initializerOf(pub)
	if hidden == nil {
		return nil
	}
	return fmt.Errorf("%T hides the %s inside, so topics would not be made: give poison.WithInitializer(the decorated "+
		"publisher, the one inside), or with poison.TopicsExist if they are made otherwise", pub, hidden)
}

// deduplicates is what a publisher may say of its broker. The outermost decorator that has the method decides.
type deduplicates interface {
	Deduplicates() bool
}

const swallowed = "its broker drops a message whose id it has had before, without an error: a message that is " +
	"redriven, goes round in a stage or is dead-lettered again would be lost"

// CheckKeeps returns an error if pub is known to lose messages that it took: its broker drops messages by their ids,
// confirms nothing, or trims one of the topics. Known are publishers that have the method Deduplicates, and those of
// watermill-nats and watermill-redisstream. What is not known of these is an error too.
func CheckKeeps(pub message.Publisher, topics ...string) error {
	if err := checkTrims(pub, topics...); err != nil {
		return err
	}
	if isAny(pub, func(known *Publisher) bool { return known.Unconfirmed }) {
		return fmt.Errorf("the publisher %T has JetStreamConfig.Disabled: NATS without JetStream confirms nothing and "+
			"keeps nothing, so a message without a subscriber is lost; leave Disabled out, or give another publisher", pub)
	}
	return checkDuplicates(pub)
}

func checkDuplicates(pub message.Publisher) error {
	for _, layer := range decorated.Layers(pub) {
		if own, ok := layer.Inside.(deduplicates); ok {
			drops := false
			if err := safecall.Call("Deduplicates",
				func() error { drops = own.Deduplicates(); return nil }); err != nil {
				return fmt.Errorf("the publisher %s: %w", layer.Type, err)
			}
			if drops {
				return fmt.Errorf("the publisher %s has Deduplicates() true: %s; give one whose broker does not deduplicate by "+
					"the message's id", layer.Type, swallowed)
			}
			return nil
		}
	}
	var unknown string
	if isAny(pub, func(known *Publisher) bool { unknown = known.Unknown; return unknown != "" }) {
		return fmt.Errorf("the publisher %T: %s is not as Spillway knows it, so it cannot see whether the broker keeps each "+
			"message: upgrade Spillway, use the version of the publisher's module before, or give a publisher around it "+
			"whose method Deduplicates() returns false, if it keeps all", pub, unknown)
	}
	var setting string
	if isAny(pub, func(known *Publisher) bool { setting = known.Deduplicates; return setting != "" }) {
		return fmt.Errorf("the publisher %T has %s: %s; set it to false for this publisher, or give another one", pub,
			setting, swallowed)
	}
	return nil
}

// isAny reports whether is holds for pub or for a publisher inside it.
func isAny(pub message.Publisher, is func(*Publisher) bool) (found bool) {
	visit(pub, func(known *Publisher, _ message.Publisher) bool {
		found = known != nil && is(known)
		return !found
	})
	return found
}

// checkTrims returns an error if pub, or a publisher inside it, keeps only so many messages of a topic. Known is the
// publisher of Redis Streams, which drops the oldest messages, even those that were never delivered.
func checkTrims(pub message.Publisher, topics ...string) error {
	for _, topic := range topics {
		var most int64
		isAny(pub, func(known *Publisher) bool {
			most = known.MaxLength(topic)
			return most > 0
		})
		if most > 0 {
			return fmt.Errorf("the publisher trims %q to %d messages, and what it trims is lost: give "+
				"redisstream.PublisherConfig no DefaultMaxlen, or set Maxlens[%q] to 0", topic, most, topic)
		}
	}
	return nil
}

// IsRefused reports whether a publisher's error is a refusal for content: classify.ErrRefused, or one of the errors with
// which clients and marshalers refuse metadata: names that NATS cannot have, or Watermill's own key. Foreign producers can
// send such metadata.
func IsRefused(err error) bool {
	return errors.Is(err, classify.ErrRefused) || err != nil && foreign.Says(boundedtext.Error(err, 1<<10), foreign.Refuses)
}

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
func stockOf(pub message.Publisher) (own message.Publisher, found *Publisher) {
	visit(pub, func(known *Publisher, inside message.Publisher) bool {
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
	visit(pub, func(known *Publisher, _ message.Publisher) bool {
		if known != nil {
			topic = known.Into
		}
		return topic == ""
	})
	return topic
}

// visit calls f with what is known of pub and of each publisher inside it, outermost first, until f returns false. The
// publisher is nil if it is in an unexported field.
func visit(pub message.Publisher, f func(known *Publisher, own message.Publisher) bool) {
	for _, layer := range decorated.Layers(pub) {
		if !f(publisherOf(layer.Value), layer.Inside) {
			return
		}
	}
}

// publisherOf is replaced in a test.
var publisherOf = PublisherOf

// A message fails.
var (
	// once: Create the topics.
	eventNoInitializer = logging.InfoEvent("no_initializer",
		"The publisher can neither make topics nor look for them, so a missing topic shows with its first message: "+
			"create the topics, and give poison.WithInitializer(publisher, poison.TopicsExist)")
)
