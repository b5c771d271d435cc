package destination

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
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
	if err := checkTrims(pub, topics...); err != nil {
		return err
	}
	if isAny(pub, func(known *foreign.Publisher) bool { return known.Unconfirmed }) {
		return fmt.Errorf("the publisher %T has JetStreamConfig.Disabled: NATS without JetStream confirms nothing and "+
			"keeps nothing, so a message without a subscriber is lost; leave Disabled out, or give another publisher", pub)
	}
	return checkDuplicates(pub)
}

func checkDuplicates(pub message.Publisher) error {
	for _, layer := range decorated.Layers(pub) {
		if own, ok := layer.Publisher.(deduplicates); ok {
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
	if isAny(pub, func(known *foreign.Publisher) bool { return known.Deduplicates }) {
		return fmt.Errorf("the publisher %T has JetStreamConfig.TrackMsgId: %s; set TrackMsgId to false for this "+
			"publisher, or give another one", pub, swallowed)
	}
	return nil
}

// isAny reports whether is holds for pub or for a publisher inside it.
func isAny(pub message.Publisher, is func(*foreign.Publisher) bool) (found bool) {
	visit(pub, func(known *foreign.Publisher, _ message.Publisher) bool {
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
		isAny(pub, func(known *foreign.Publisher) bool {
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
