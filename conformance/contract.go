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
	of    string // the promises that rest on it
	lost  string // what becomes of messages without it
}

// contract is every sentence. Its ids are never used again for another sentence.
func contract() []sentence {
	return []sentence{
		{"K1", "confirms", "Publish returns nil only when the broker keeps the message. It waits for no consumer. Many " +
			"goroutines may publish at once.",
			"P1, D4", "A letter whose publish returned nil is gone, and its source is acked. Use a publisher that " +
				"confirms, or a letters.Store."},
		{"K2", "redelivers", "A message that was not acked comes again: after a nack, after Close, after its process died, " +
			"after its connection was lost.",
			"P1", "A message that was nacked is gone."},
		{"K3", "redelivery time", "While a consumer holds a message, the message is not delivered again, to this consumer " +
			"or another, before the time that RedeliveryTime returns.",
			"R5, R12, P3", "A message that waits here is handled by another consumer too. The receiver keeps its effect at " +
				"one."},
		{"K4", "acks only on Ack",
			"Only Ack ends a message. A nack, Close, a context that ends and a lost connection do not.",
			"P1, P3", "What a closing process requeues is gone."},
		{"K5", "groups", "Each consumer group gets every message, and one instance of a group gets it. Or all subscribers " +
			"of a topic compete.",
			"R7, D12", "Two handlers of one topic share its messages. Each handler needs a topic of its own."},
		{"K6", "order", "What one publisher published comes in that order to a group with one instance, if nothing is " +
			"redelivered.",
			"R5", "A message may wait in a stage behind one that is due later. It is late, and never early. A Store " +
				"has no such order."},
		{"K7", "no deduplication", "A message is delivered each time it is published, even if its id was published before.",
			"V1, V7, R5", "A redrive reports success and nothing arrives. A publisher whose method Deduplicates() bool " +
				"returns true is refused."},
		{"K8", "sizes", "A message that is too large is refused with an error that says so. Smaller messages are accepted after it.",
			"P4, D4", "A refusal for size that is not known as one is tried again and again. Wrap classify.ErrTooLarge, " +
				"or name it by a rule with TooLarge: true."},
		{"K9", "metadata", "Metadata arrive as they were sent, whatever bytes are in keys and values.",
			"P2", "The handler, the letter and the redrive get what arrived. What letters and stages would lose of it " +
				"is packed beside it, in x-original-metadata-b64."},
		{"K10", "names", "Two names are two topics. A name that the broker cannot have is an error.",
			"D3, R5", "Topics need other names: spillway.Config.Naming."},
		{"K11", "context", "A message's context ends when the message can no longer be acked: at Close, and when its " +
			"session or connection is lost.",
			"P3", "A handler goes on although the message is with another consumer. An error of the shutdown counts " +
				"as an attempt."},
		{"K12", "keeps", "What was confirmed is kept until it is acked: without a subscriber, and over a restart of " +
			"process and broker. No age and no length drops it.",
			"P1, D16", "A letter or a waiting message that the broker drops is gone."},
		{"K13", "remembers", "What a group has acked does not come to that group again after a Close.",
			"V1, V3", "A second drain brings back letters that were already redriven. The receiver absorbs them."},
		{"K14", "unreadable", "A subscriber that cannot read a message delivers it, marked by poison.MarkUnreadable, and " +
			"goes on behind it.",
			"P4, D8", "A message that cannot be read stops its topic, comes again for ever, or is gone."},
		{"K15", "id and payload",
			"Id and payload arrive byte for byte. An id has up to 300 bytes, and a payload may be empty.",
			"P2, P7, D10", "The receiver and the crash limit know a message by its id: take the key from elsewhere."},
		{"K16", "topics", "A publisher with InitializeTopics makes the topics, or returns an error. Without that method, " +
			"publishing or subscribing makes a topic.",
			"D5, D16", "The first letter finds out that its topic is missing, and its message is requeued until the topic " +
				"exists."},
		{"K17", "instances", "An instance that joins a group gets messages at once, even while another instance is busy.",
			"F6, F8, F10", "A new instance waits until the busy one has finished."},
		{"K18", "transaction", "Optional: what a handler writes can join the transaction that acks its message, on one " +
			"server with the messages.",
			"D9, R12b", "The receiver uses a transaction of its own. Outputs and letters are published at least once."},
		{"K19", "lists", "Optional: the publisher's ListWaiting returns the topics that hold messages.",
			"H9", "Messages in a stage that no handler consumes any more are not reported."},
		{"K20", "counts", "Optional: the number of messages that wait for a group can be asked.",
			"V1", "A drain ends after redrive.DrainTopicConfig.IdleAfter without a letter."},
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
			fmt.Fprintf(&why, "\nThe pub/sub breaks %s Without it: %s", s, s.lost)
		} else {
			fmt.Fprintf(&why, "\nIt rests on %s", s)
		}
	}
	return why.String()
}
