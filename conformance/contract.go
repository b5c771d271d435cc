package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// sentence is one thing that a pub/sub must do for Spillway's promises to hold on it. docs/pubsub.md has the same
// sentences.
type sentence struct {
	id    string
	title string
	text  string
}

// contract is every sentence. Its ids are never used again for another sentence.
func contract() []sentence {
	return []sentence{
		{"K1", "confirms", "Publish returns nil only when the broker keeps the message. It waits for no consumer. Many " +
			"goroutines may publish at once."},
		{"K2", "redelivers", "A message that was not acked comes again: after a nack, after Close, after its process died, " +
			"after its connection was lost."},
		{"K3", "redelivery time", "While a consumer holds a message, the message is not delivered again, to this consumer " +
			"or another, before the time that RedeliveryTime returns."},
		{"K4", "acks only on Ack",
			"Only Ack ends a message. A nack, Close, a context that ends and a lost connection do not."},
		{"K5", "groups", "Each consumer group gets every message, and one instance of a group gets it. Or all subscribers " +
			"of a topic compete."},
		{"K6", "order", "What one publisher published comes in that order to a group with one instance, if nothing is " +
			"redelivered."},
		{"K7", "no deduplication", "A message is delivered each time it is published, even if its id was published before."},
		{"K8", "sizes", "A message that is too large is refused with an error that says so. Smaller messages are accepted after it."},
		{"K9", "metadata", "Metadata arrive as they were sent, whatever bytes are in keys and values."},
		{"K10", "names", "Two names are two topics. A name that the broker cannot have is an error."},
		{"K11", "context", "A message's context ends when the message can no longer be acked: at Close, and when its " +
			"session or connection is lost."},
		{"K12", "keeps", "What was confirmed is kept until it is acked: without a subscriber, and over a restart of " +
			"process and broker. No age and no length drops it."},
		{"K13", "remembers", "What a group has acked does not come to that group again after a Close."},
		{"K14", "unreadable", "A subscriber that cannot read a message delivers it, marked by poison.MarkUnreadable, and " +
			"goes on behind it."},
		{"K15", "id and payload",
			"Id and payload arrive byte for byte. An id has up to 300 bytes, and a payload may be empty."},
		{"K16", "topics", "A publisher with InitializeTopics makes the topics, or returns an error. Without that method, " +
			"publishing or subscribing makes a topic."},
		{"K17", "instances", "An instance that joins a group gets messages at once, even while another instance is busy."},
		{"K18", "transaction", "Optional: what a handler writes can join the transaction that acks its message, on one " +
			"server with the messages."},
		{"K19", "lists", "Optional: the publisher's ListWaiting returns the topics that hold messages."},
		{"K20", "counts", "Optional: the number of messages that wait for a group can be asked."},
	}
}

func (s sentence) String() string { return s.id + " (" + s.title + "): " + s.text }

// said returns the sentence with the id.
func said(id string) (sentence, bool) {
	all := contract()
	if i := slices.IndexFunc(all, func(s sentence) bool { return s.id == id }); i >= 0 {
		return all[i], true
	}
	return sentence{}, false
}

// pinned is how a pin is written: the sentence that the pub/sub does not keep, and why.
var pinned = regexp.MustCompile(`^(K[0-9]+): (.+)$`)

// readPin returns the sentence and the reason of a pin.
func readPin(pin string) (id, reason string, err error) {
	found := pinned.FindStringSubmatch(pin)
	if found == nil {
		return "", "", fmt.Errorf(`%q does not begin with a sentence of docs/pubsub.md: write it like "K12: lives in one process"`, pin)
	}
	if _, ok := said(found[1]); !ok {
		return "", "", fmt.Errorf("%q begins with %s, which is no sentence of docs/pubsub.md: use one of K1 to K%d", pin,
			found[1], len(contract()))
	}
	return found[1], found[2], nil
}

// sentences are those that the feature rests on.
func (f feature) sentences() []string { return strings.Fields(f.rests) }

// why says, in the log of a feature that failed, what the pub/sub may have broken.
func (f feature) why() string {
	var why strings.Builder
	fmt.Fprintf(&why, "%s failed: %s", f.id, f.title)
	for _, id := range f.sentences() {
		s, _ := said(id)
		if s.id == f.id {
			fmt.Fprintf(&why, "\nThe pub/sub breaks %s", s)
		} else {
			fmt.Fprintf(&why, "\nIt rests on %s", s)
		}
	}
	return why.String()
}
