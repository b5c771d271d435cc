package destination

import (
	"fmt"
	"strings"

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
// watermill-nats and watermill-redisstream. What is not known of these is an error too.
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
	var known foreign.Publisher
	isAny(pub, func(each *foreign.Publisher) bool {
		known = *each
		return each.Deduplicates != "" || each.Unknown != ""
	})
	switch {
	case known.Deduplicates != "":
		return fmt.Errorf("the publisher %T has %s: %s; set %s to false for this publisher, or give another one", pub,
			known.Deduplicates, swallowed, known.Deduplicates[strings.LastIndex(known.Deduplicates, ".")+1:])
	case known.Unknown != "":
		return fmt.Errorf("the publisher %T: %s is not as Spillway knows it, so it cannot see whether the broker drops "+
			"messages that it confirmed; keep the module's older version, or give a publisher around it whose method "+
			"Deduplicates() returns false, if it keeps all", pub, known.Unknown)
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
