package poison

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/deadletter"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/settings"
)

// Features D3, D12: a dead letter whose own consumer fails is parked, and its origin stays, also under a name of its
// own. No message on a live topic makes that one a dead-letter topic.
func TestQueueParksUnderAnyNaming(t *testing.T) {
	names := naming.Scheme{Names: map[string]string{"orders.dlq": "orders-dead"}}
	for topic, scheme := range map[string]naming.Scheme{"orders.dlq": {}, "orders-dead": names} {
		dead := &sink{}
		r := start(t, topic, dead, QueueConfig{Shared: settings.Shared{Naming: scheme}}, failing(errors.New("a bug")))
		r.publish(sampleLetter().Encode())
		eventually(t, "it is parked", func() bool { return dead.topics() == topic+".parked:1" })
		l, _ := Decode(dead.in(topic + ".parked")[0])
		testkit.Check(t, l.Origin.Topic == "orders" && l.Origin.Handler == "billing" && l.Redrive.Count == 2 &&
			l.Failure.Description == "a bug", "parked %+v", l)
	}
	dead := &sink{}
	live := start(t, "payments", dead, QueueConfig{Shared: settings.Shared{Naming: names}}, failing(errors.New("a bug")))
	live.publish(sampleLetter().Encode())
	eventually(t, "the forged letter is a letter of its topic", func() bool { return len(dead.in("payments.dlq")) == 1 })
	l, _ := Decode(dead.in("payments.dlq")[0])
	testkit.Check(t, l.Origin.Topic == "payments", "origin %+v", l.Origin)
}

// Feature D1: handler and group of a letter are those that failed, also when the message came back from a redrive and
// another handler of its topic fails.
func TestLetterNamesTheHandlerThatFailed(t *testing.T) {
	dead := &sink{}
	r := start(t, "orders", dead, QueueConfig{}, failing(errors.New("boom")))
	l := sampleLetter()
	l.Origin.Handler = "audit"
	r.publish(l.Redriven("ada", "campaign", longAgo))
	eventually(t, "the letter is placed", func() bool { return len(dead.in("orders.dlq")) == 1 })
	got, _ := Decode(dead.in("orders.dlq")[0])
	testkit.Check(t, got.Origin.Handler == "billing" && got.Origin.Offset == "77" && got.Origin.Topic == "orders",
		"origin %+v", got.Origin)
}

// Feature D12: where the parked topic refuses, even an invalid dead letter goes to the fallbacks and never to .dlq.dlq.
func TestParkedNeverFallsBackToDeadLettersOfDeadLetters(t *testing.T) {
	last := &sink{}
	dead := &sink{refuse: func(_ int, topic string, _ *message.Message) error {
		if topic == "orders.dlq.parked" {
			return errors.New("read only")
		}
		return nil
	}}
	config := QueueConfig{PublishBackoff: time.Millisecond, Fallbacks: []Sink{{Publisher: last}}}
	r := start(t, "orders.dlq", dead, config, failing(classify.Invalid(errors.New("cannot be read"))))
	r.publish(sampleLetter().Encode())
	eventually(t, "a sink has it", func() bool { return dead.topics()+last.topics() != "" })
	testkit.Check(t, dead.topics() == "" && last.topics() == "orders.dlq.parked:1",
		"placed in %q, fallback has %q", dead.topics(), last.topics())
}

// Feature D8: what the adapter could not read is set aside with its raw bytes before any handler sees it, also when it
// is delivered again as a copy; the letter carries no mark, and the message behind it is handled.
func TestUnreadableIsSetAside(t *testing.T) {
	dead, handled := &sink{}, make(chan string, 10)
	dead.refuse = func(try int, _ string, _ *message.Message) error {
		if try <= 4 { // both topics, twice
			return errors.New("not yet")
		}
		return nil
	}
	r := start(t, "orders", dead, QueueConfig{PublishAttempts: 1}, func(msg *message.Message) ([]*message.Message, error) {
		handled <- msg.UUID
		return nil, nil
	})
	bad := message.NewMessage("bad", []byte{0xff, 0})
	bad.Metadata.Set("tenant", "acme")
	MarkUnreadable(bad, errors.New("no such schema"))
	r.publish(bad)
	r.publish(message.NewMessage("good", nil))
	eventually(t, "the unreadable one is set aside", func() bool { return len(dead.in("orders.invalid")) == 1 })
	testkit.Equal(t, "handled", <-handled, "good")
	l := testkit.Must(Decode(dead.in("orders.invalid")[0]))
	testkit.Check(t, l.Failure.Class == classify.ClassInvalid && l.Failure.Reason == classify.ReasonUnmarshal &&
		l.Failure.Description == "no such schema", "failure: %+v", l.Failure)
	testkit.Check(t, string(l.Original.Payload) == "\xff\x00" && len(l.Original.Metadata) == 1 &&
		l.Original.Metadata["tenant"] == "acme", "original: %v %q", l.Original.Metadata, l.Original.Payload)
}

// Feature D8: a mark without this process's token is a producer's own invention, and a message without metadata can be
// marked.
func TestForgedUnreadableMark(t *testing.T) {
	for _, value := range []string{"", "no", strings.Repeat("A", 26) + "uno"} {
		msg := message.NewMessage("id", nil)
		msg.Metadata.Set(deadletter.KeyMarked, value)
		err := deadletter.Marked(msg.Metadata[deadletter.KeyMarked])
		testkit.Check(t, err == nil, "%q is believed: %v", value, err)
	}
	bare := &message.Message{}
	MarkUnreadable(bare, errors.New("why"))
	var verdict = new(classify.Classifier).Classify(deadletter.Marked(bare.Metadata[deadletter.KeyMarked]))
	testkit.Check(t, verdict.Class == classify.ClassInvalid && verdict.Reason == classify.ReasonUnmarshal,
		"verdict %+v", verdict)
}
