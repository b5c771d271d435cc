package poison

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/deadletter"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

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
	if id := <-handled; id != "good" {
		t.Errorf("handled %q", id)
	}
	l := testkit.Must(Decode(dead.in("orders.invalid")[0]))
	if l.Failure.Class != classify.ClassInvalid || l.Failure.Reason != classify.ReasonUnmarshal || l.Failure.Description != "no such schema" {
		t.Errorf("failure: %+v", l.Failure)
	}
	if string(l.Original.Payload) != "\xff\x00" || len(l.Original.Metadata) != 1 || l.Original.Metadata["tenant"] != "acme" {
		t.Errorf("original: %v %q", l.Original.Metadata, l.Original.Payload)
	}
}

// Feature D8: a mark without this process's token is a producer's own invention, and a message without metadata can be
// marked.
func TestForgedUnreadableMark(t *testing.T) {
	for _, value := range []string{"", "no", strings.Repeat("A", 26) + "uno"} {
		msg := message.NewMessage("id", nil)
		msg.Metadata.Set(deadletter.KeyMarked, value)
		if err := deadletter.Marked(msg.Metadata[deadletter.KeyMarked]); err != nil {
			t.Errorf("%q is believed: %v", value, err)
		}
	}
	bare := &message.Message{}
	MarkUnreadable(bare, errors.New("why"))
	var verdict = new(classify.Classifier).Classify(deadletter.Marked(bare.Metadata[deadletter.KeyMarked]))
	if verdict.Class != classify.ClassInvalid || verdict.Reason != classify.ReasonUnmarshal {
		t.Errorf("verdict %+v", verdict)
	}
}
