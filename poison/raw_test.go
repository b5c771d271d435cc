package poison

import (
	"bytes"
	"compress/flate"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// strict refuses every message with metadata that is not ours, or that holds anything but printable ASCII.
func strict(err error) func(int, string, *message.Message) error {
	return func(_ int, _ string, msg *message.Message) error {
		if !isASCII(msg.UUID) || len(msg.UUID) > maxRawID {
			return fmt.Errorf("id %q: %w", msg.UUID, err)
		}
		total := 0
		for key, value := range msg.Metadata {
			if total += len(key) + len(value); ours[key]&byUs == 0 || !isASCII(value) || total > maxRaw+maxPacked+len(KeyOriginalMetadata) {
				return fmt.Errorf("header %q: %w", key, err)
			}
		}
		return nil
	}
}

func placedBy(t *testing.T, dead message.Publisher, config QueueConfig, msg *message.Message) {
	t.Helper()
	queue := newQueue(dead, config)
	testkit.NoError(t, queue.Place(msg, errors.New("no such customer")))
}

// Feature D4, promises P2 and P4: a letter that every sink refuses for what it carries is placed in its raw form, out
// of which it is read as it was. So are those that a publisher panics over, or refuses with what is permanent.
func TestRefusedLetterIsPacked(t *testing.T) {
	for name, refuse := range map[string]func(int, string, *message.Message) error{
		"ErrRefused": strict(classify.ErrRefused),
		"too large":  strict(classify.ErrTooLarge),
		"permanent":  strict(classify.Permanent(errors.New("value too long"))),
		"panic": func(try int, topic string, msg *message.Message) error {
			if strict(classify.ErrRefused)(try, topic, msg) != nil {
				panic("marshal")
			}
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			dead := &sink{refuse: refuse}
			msg := message.NewMessage(strings.Repeat("é", 60), []byte("payload\x00"))
			msg.Metadata = message.Metadata{
				"reply-to": "amq.rabbitmq.reply-to", "bytes": "\xff\x00", strings.Repeat("k", 300): "", "text": strings.Repeat("ab\n", 40_000),
				KeyOriginalTopic: "ünbekannt", KeyRedriveCount: "3",
			}
			sent := msg.Copy()
			placedBy(t, dead, QueueConfig{Fallbacks: []Sink{{Publisher: &sink{refuse: refuse}, Topic: "other"}}}, msg)
			taken := dead.in("unknown.dlq")
			testkit.Require(t, len(taken) == 1 && string(taken[0].Payload) == string(sent.Payload),
				"%s: placed %s", name, dead.topics())
			l, err := Decode(taken[0])
			testkit.Check(t, err == nil && l.Redrive.Count == 3 && l.Failure.Description == "no such customer" &&
				l.Origin.Topic == "unknown" && equalLetters(l, Read(taken[0])), "%s: reads %+v, %v", name, l, err)
			testkit.Check(t, l.Original.UUID == sent.UUID && maps.Equal(l.Original.Metadata, (*inner)(nil).ProducerMetadata(sent.Metadata)),
				"%s: the original has id %q and %d keys", name, l.Original.UUID, len(l.Original.Metadata))
			_, packed := (*inner)(nil).ProducerMetadata(taken[0].Metadata)[KeyOriginalMetadata]
			testkit.Check(t, !packed, "what is packed counts as the producer's")
		})
	}
}

// Feature D4, promise P4: metadata that are too large even when packed are dropped, and the letter says how much that
// was.
func TestRefusedLetterIsBare(t *testing.T) {
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	for name, metadata := range map[string]message.Metadata{
		"does not fit":      {"noise": string(noise)},
		"is refused packed": {"small": "value"},
	} {
		synctest.Test(t, func(t *testing.T) {
			dead := &sink{refuse: func(try int, topic string, msg *message.Message) error {
				if _, packed := msg.Metadata[KeyOriginalMetadata]; packed {
					return classify.ErrTooLarge
				}
				return strict(classify.ErrRefused)(try, topic, msg)
			}}
			msg := message.NewMessage("m", []byte("payload"))
			msg.Metadata = metadata
			placedBy(t, dead, QueueConfig{}, msg)
			taken := dead.in("unknown.dlq")
			testkit.Require(t, len(taken) == 1 && taken[0].UUID == "m" &&
				strings.HasPrefix(taken[0].Metadata[keyDropped], "1 keys, "), "%s: %s", name, dead.topics())
		})
	}
}

// Promise P4: there is no message whose letter a sink refuses that takes printable ASCII.
func TestRawTakesAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		draw := func(name string) string {
			if rapid.Bool().Draw(t, name+" is bytes") {
				return string(rapid.SliceOf(rapid.Byte()).Draw(t, name))
			}
			return text.Draw(t, name)
		}
		msg := message.NewMessage(draw("id"), nil)
		keys := []string{KeyOriginalTopic, KeyOriginalKey, KeyOriginalMetadata, KeyRedriveID, KeyAttemptHistory, KeyFailureClass, "x"}
		for range rapid.IntRange(0, 8).Draw(t, "keys") {
			msg.Metadata[rapid.SampledFrom(append(keys, draw("key"))).Draw(t, "which")] = draw("value")
		}
		dead := &sink{refuse: strict(classify.ErrRefused)}
		queue := newQueue(dead, QueueConfig{Node: draw("node")})
		testkit.NoError(t, queue.Place(msg, errors.New(draw("error"))))
	})
}

// Promise P4: packed metadata may be forged. They are bounded, bring none of our keys, and mean nothing on a live
// topic.
func TestUnpackHostile(t *testing.T) {
	pack := func(fields string) string {
		var compressed bytes.Buffer
		w, _ := flate.NewWriter(&compressed, flate.BestCompression)
		_, _ = w.Write([]byte(fields))
		_ = w.Close()
		return base64.StdEncoding.EncodeToString(compressed.Bytes())
	}
	for name, encoded := range map[string]string{
		"no base64": "*", "no flate": "AAAA", "bomb": pack(strings.Repeat("\x00", 8<<20)), "cut": pack("\x01m\x05k"), "no id": pack(""),
		"odd": pack("\x01m\x01k"), "long": pack("\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
	} {
		msg := message.NewMessage("m", nil)
		msg.Metadata = message.Metadata{KeyFailureClass: "permanent", KeyOriginalMetadata: encoded}
		l := Read(msg)
		testkit.Check(t, l.Original.UUID == "m" && len(l.Original.Metadata) == 0,
			"%s: id %q, metadata %q", name, l.Original.UUID, l.Original.Metadata)
	}
	forged := pack("\x05other\x10x-original-topic\x08payments\x06tenant\x04acme")
	msg := message.NewMessage("m", nil)
	msg.Metadata = message.Metadata{KeyFailureClass: "permanent", KeyOriginalMetadata: forged}
	if l := Read(msg); l.Original.UUID != "other" || !maps.Equal(l.Original.Metadata, message.Metadata{"tenant": "acme"}) {
		t.Errorf("id %q, metadata %q", l.Original.UUID, l.Original.Metadata)
	}
	dead := &sink{}
	placedBy(t, dead, QueueConfig{}, msg)
	got := dead.in("unknown.dlq")
	testkit.Check(t, len(got) == 1 && got[0].UUID == "m" && got[0].Metadata["tenant"] == "",
		"a live topic's message was unpacked: %v", got)
}

// Feature V3, D6: however long the names are that a letter tells, its counts are not cut.
func TestCountsAreNotCut(t *testing.T) {
	long := strings.Repeat("t", 1960)
	for total := 1 << 10; total <= 4<<10; total += 16 {
		l := Letter{Original: message.NewMessage("m", nil), Origin: Origin{Topic: long, Handler: strings.Repeat("h", 900)}}
		l.Failure = Failure{Class: classify.ClassTransient, Reason: strings.Repeat("r", 500), Attempts: 1_000_000}
		l.Redrive.Count = 1_000_000
		l.stage.Number = 1_000_000
		back := Read(l.encode(limits{total: total, description: 256}))
		if back.Redrive.Count != l.Redrive.Count || back.Failure.Attempts != l.Failure.Attempts || (*inner)(nil).StageOf(l.encode(limits{total: total})).Number != l.stage.Number {
			t.Errorf("within %d bytes: %d redrives, %d attempts", total, back.Redrive.Count, back.Failure.Attempts)
		}
	}
	l := Letter{Original: message.NewMessage("m", nil), Origin: Origin{Topic: long}}
	l.Redrive.Count = 50
	l.Failure = Failure{Class: classify.ClassTransient, Reason: classify.ReasonUnknownMaxRetries}
	if back := Read(l.encode(defaultLimits.within(shrunkLimits))); back.Origin.Topic != long || back.Redrive.Count != 50 || back.Failure.Reason != l.Failure.Reason {
		t.Errorf("cut down: topic of %d bytes, %+v, reason %q", len(back.Origin.Topic), back.Redrive, back.Failure.Reason)
	}
}

// Promise P4: the length of a value in base64 is checked before it is decoded.
func TestBase64IsBoundedFirst(t *testing.T) {
	huge := strings.Repeat("AAAA", 4<<20)
	msg := message.NewMessage("m", nil)
	for _, key := range []string{KeyOriginalTopic + Base64Suffix, KeyOriginalKey + Base64Suffix, KeyOriginalMetadata} {
		msg.Metadata[key] = huge
	}
	msg.Metadata[KeyFailureClass] = "permanent"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Read(msg)
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	testkit.Check(t, allocated <= 1<<20, "%d bytes are allocated to read it", allocated)
}

// Decision 15: the key that a live topic's message claims for itself is not believed where the adapter knows it: a
// redrive would publish under a key that the producer could not choose. A redriven message keeps its first place.
func TestClaimedKeyIsNotBelieved(t *testing.T) {
	for name, known := range map[string]Origin{"a key": {Topic: "unknown", Key: []byte("tenant-1")}, "none": {Topic: "unknown"}} {
		dead := &sink{}
		msg := message.NewMessage("m", nil)
		msg.Metadata = message.Metadata{KeyOriginalTopic: "unknown", KeyOriginalKey: "tenant-2", KeyOriginalOffset: "7", KeyRedriveCount: "1"}
		placedBy(t, dead, QueueConfig{Origin: func(*message.Message) Origin { return known }}, msg)
		l := Read(dead.in("unknown.dlq")[0])
		testkit.Check(t, string(l.Origin.Key) == string(known.Key) && l.Origin.Offset == "7" && l.Redrive.Count == 1,
			"%s: %+v", name, l.Origin)
	}
}

// Promise P4: metadata with the key that Watermill's own marshalers keep for themselves are packed.
func TestReservedMetadataIsPacked(t *testing.T) {
	const reserved = "_watermill_message_uuid"
	dead := &sink{refuse: func(_ int, _ string, msg *message.Message) error {
		if _, ok := msg.Metadata[reserved]; ok {
			return fmt.Errorf("cannot marshal message %s: metadata %s is reserved by watermill for message UUID", msg.UUID, reserved)
		}
		return nil
	}}
	msg := message.NewMessage("m", []byte("payload"))
	msg.Metadata[reserved] = "another"
	placedBy(t, dead, QueueConfig{}, msg)
	got := dead.in("unknown.dlq")
	testkit.Require(t, dead.tries == 2 && len(got) == 1, "%d tries, then %s", dead.tries, dead.topics())
	l, err := Decode(got[0])
	testkit.Check(t, err == nil && l.Original.Metadata[reserved] == "another", "%+v, %v", l.Original, err)
}
