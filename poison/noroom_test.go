package poison

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
)

func bytesOf(msg *message.Message) int {
	return len(msg.UUID) + len(msg.Payload) + sizeOf(msg.Metadata)
}

// narrow refuses what is larger than a bound, in the words of NATS.
func narrow(most int) func(int, string, *message.Message) error {
	return func(_ int, _ string, msg *message.Message) error {
		if bytesOf(msg) > most {
			return errors.New("nats: maximum payload exceeded")
		}
		return nil
	}
}

func ofSize(id string, size int) *message.Message {
	msg := message.NewMessage(id, nil)
	msg.Metadata["tenant"] = "acme\nberlin"
	msg.Payload = make([]byte, size-bytesOf(msg))
	return msg
}

// Feature D4, promise P4: of a message that leaves little room its letter has what fits; at last the message is placed
// as it came, and the log has its story. Those behind it go on.
func TestNoRoomForALetter(t *testing.T) {
	const most = 1 << 20
	for _, row := range []struct {
		spare  int
		letter bool
	}{{64 << 10, true}, {4 << 10, true}, {512, true}, {260, true}, {100, false}, {1, false}, {0, false}} {
		log := &testkit.Log{}
		dead := &sink{refuse: narrow(most)}
		var placed atomic.Int32
		r := start(t, "orders", dead, QueueConfig{Shared: observe.Shared{Logger: log}, WatermillKeys: true, Hooks: Hooks{OnDeadLetter: func(_ context.Context, l Letter) {
			if l.DeadLetterTopic == "orders.dlq" {
				placed.Add(1)
			}
		}}}, failing(classify.Permanent(errors.New(strings.Repeat("long ", 4<<10)), classify.Reason("card_expired"))))
		sent := ofSize("large", most-row.spare)
		r.publish(sent.Copy())
		r.publish(message.NewMessage("behind", nil))
		eventually(t, "both are placed", func() bool { return placed.Load() == 2 })
		both := dead.in("orders.dlq")
		got := both[slices.IndexFunc(both, func(msg *message.Message) bool { return msg.UUID == "large" })]
		if l, err := Decode(got); row.letter && (err != nil || l.Origin.Topic != "orders" || l.Failure.Class != classify.ClassPermanent || l.Failure.Reason != "card_expired") {
			t.Errorf("%d bytes to spare: %+v, %v", row.spare, l, err)
		} else if !row.letter && !errors.Is(err, ErrNotLetter) {
			t.Errorf("%d bytes to spare: a letter of %d bytes, %v", row.spare, bytesOf(got), err)
		}
		if own := Read(got).Original; own.UUID != "large" || len(own.Payload) != len(sent.Payload) || !maps.Equal(own.Metadata, sent.Metadata) {
			t.Errorf("%d bytes to spare: not the message that came: %q, %v", row.spare, own.UUID, own.Metadata)
		}
		lines := log.Lines(watermill.ErrorLogLevel, "No dead letter fits")
		testkit.Require(t, len(lines) == map[bool]int{true: 0, false: 1}[row.letter],
			"%d bytes to spare: %v", row.spare, lines)
		if !row.letter {
			f := lines[0].Fields
			if f["message_id"] != "large" || f["topic"] != "orders" || f["dead_letter_topic"] != "orders.dlq" || f["reason"] != "card_expired" || f["form"] != "plain" {
				t.Errorf("the line has %v", f)
			}
		}
	}
}

// Feature D4: a sink with more room has the whole letter, before any other has less than a letter.
func TestNoRoomHereButThere(t *testing.T) {
	dead, other := &sink{refuse: narrow(1 << 10)}, &sink{refuse: narrow(1 << 20)}
	placedBy(t, dead, QueueConfig{Fallbacks: []Sink{{Publisher: &sink{refuse: narrow(1 << 10)}}, {Publisher: other}}}, ofSize("large", 1<<10))
	got := other.in("unknown.dlq")
	testkit.Check(t, len(got) == 1 && isLetter(got[0]) && dead.topics() == "",
		"here %q, there %q", dead.topics(), other.topics())
}

// Promises P1, P4: a message that is larger than any sink takes stays, comes again ever more slowly, and is placed once
// there is room.
func TestNoRoomAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		var wider atomic.Bool
		dead := &sink{refuse: func(try int, topic string, msg *message.Message) error {
			if wider.Load() {
				return nil
			}
			return narrow(1<<10)(try, topic, msg)
		}}
		var deliveries atomic.Int32
		r := start(t, "orders", dead, QueueConfig{Shared: observe.Shared{Logger: log}}, func(*message.Message) ([]*message.Message, error) {
			deliveries.Add(1)
			return nil, classify.Permanent(errors.New("no such customer"))
		})
		r.publish(ofSize("large", 2<<10))
		time.Sleep(5 * time.Minute)
		n := deliveries.Load()
		testkit.Check(t, n >= 20 && n <= 40, "delivered %d times in five minutes", n)
		lines := log.Lines(watermill.ErrorLogLevel, "All publishers refused")
		testkit.Check(t, len(lines) != 0 && strings.Contains(lines[0].Err.Error(), "QueueConfig.Fallbacks"),
			"%v", lines)
		wider.Store(true)
		time.Sleep(time.Minute)
		got := dead.in("orders.dlq")
		testkit.Check(t, len(got) == 1 && isLetter(got[0]), "placed %s", dead.topics())
	})
}

// Feature V1, V3: a message that has no room for a redrive's record comes back with its count alone.
func TestRedrivenLeast(t *testing.T) {
	l := sampleLetter()
	least := Letter{Original: l.Original, Redrive: Redrive{Count: l.Redrive.Count}}
	msg := least.Redriven("", "", time.Time{})
	want := (message.Metadata{"tenant": "acme", "x-original-thing": "the producer's own", KeyRedriveCount: "3"})
	testkit.Check(t, maps.Equal(msg.Metadata, want) && msg.UUID == "id-1", "%q with %v", msg.UUID, msg.Metadata)
	least.Redrive.Count = 1_000_000 - 1
	testkit.Check(t, least.Redriven("", "", time.Time{}).Metadata[KeyRedriveCount] == "1000000",
		"a large count is lost")
}

// Features D3, D12: a dead letter whose own consumer fails is parked, and its origin stays, also under a name of its
// own. No message on a live topic makes that one a dead-letter topic.
func TestQueueParksUnderAnyNaming(t *testing.T) {
	names := naming.Scheme{Names: map[string]string{"orders.dlq": "orders-dead"}}
	for topic, scheme := range map[string]naming.Scheme{"orders.dlq": {}, "orders-dead": names} {
		dead := &sink{}
		r := start(t, topic, dead, QueueConfig{Naming: scheme}, failing(errors.New("a bug")))
		r.publish(sampleLetter().Encode())
		eventually(t, "it is parked", func() bool { return dead.topics() == topic+".parked:1" })
		l, _ := Decode(dead.in(topic + ".parked")[0])
		testkit.Check(t, l.Origin.Topic == "orders" && l.Origin.Handler == "billing" && l.Redrive.Count == 2 &&
			l.Failure.Description == "a bug", "parked %+v", l)
	}
	dead := &sink{}
	live := start(t, "payments", dead, QueueConfig{Naming: names}, failing(errors.New("a bug")))
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
