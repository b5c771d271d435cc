package poison

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/privacy"
)

// events are what happened, in order. It is a placing.Delivery too.
type events struct {
	all    []string
	during func()
}

func (e *events) add(event string) { e.all = append(e.all, event) }

func (e *events) Placing(_ context.Context, msg *message.Message) {
	e.add("placing " + msg.UUID)
	if e.during != nil {
		e.during()
	}
}

// Promise P1: the subscriber learns that a message is being placed after its handler and before the publisher, and
// learns nothing of a message of which no letter is made.
func TestPlacingBegins(t *testing.T) {
	boom := errors.New("boom")
	for name, row := range map[string]struct {
		err  error
		with func(context.Context, *message.Message) context.Context
		want []string
	}{
		"failure":   {err: boom, want: []string{"handled", "placing id", "published"}},
		"panic":     {err: safecall.Panicked("boom"), want: []string{"handled", "placing id", "published"}},
		"success":   {want: []string{"handled"}},
		"discard":   {err: classify.Discard(boom), want: []string{"handled"}},
		"nacked":    {err: boom, with: func(ctx context.Context, msg *message.Message) context.Context { msg.Nack(); return ctx }, want: []string{"handled"}},
		"cancelled": {err: boom, with: func(ctx context.Context, _ *message.Message) context.Context { return cancelled(ctx) }, want: []string{"handled"}},
		"claimed": {err: boom, with: func(ctx context.Context, _ *message.Message) context.Context {
			return chain.WithClaim(ctx, ofAll{})
		}, want: []string{"handled"}},
	} {
		e := &events{}
		queue := newQueue(&sink{refuse: func(int, string, *message.Message) error { e.add("published"); return nil }}, QueueConfig{})
		msg := message.NewMessage("id", nil)
		ctx := placing.With(context.Background(), e)
		if row.with != nil {
			ctx = row.with(ctx, msg)
		}
		msg.SetContext(ctx)
		_, _ = queue.Middleware(func(*message.Message) ([]*message.Message, error) { e.add("handled"); return nil, row.err })(msg)
		testkit.Check(t, slices.Equal(e.all, row.want), "%s: %v, want %v", name, e.all, row.want)
		e.all = nil
		_ = queue.Place(msg, boom)
		testkit.Check(t, !slices.Contains(e.all, "placing id"), "%s: Place without a chain: %v", name, e.all)
	}
}

// Promise P3: a message that goes away while it waits for its turn is given back, and nothing is published.
func TestPlacingWaitsForItsTurn(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	dead, e := &sink{}, &events{during: end}
	queue := newQueue(dead, QueueConfig{})
	msg := message.NewMessageWithContext(placing.With(ctx, e), "id", nil)
	_, err := queue.Middleware(failing(errors.New("boom")))(msg)
	testkit.Check(t, chain.IsAborted(err) && dead.tries == 0, "%v, and %d were published", err, dead.tries)
}

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// ofAll is a claim of whatever message.
type ofAll struct{ chain.Claim }

func (ofAll) Holds(*message.Message) bool { return true }

// Promise P3, decision 2: nacked by its handler, a message is on its way back and is not placed too; acked by its
// handler, which ends its context, it has not gone away.
func TestQueueHandlerSettlesItself(t *testing.T) {
	dead := &sink{}
	nacked := false
	r := start(t, "orders", dead, QueueConfig{}, func(msg *message.Message) ([]*message.Message, error) {
		switch {
		case msg.UUID == "nack" && !nacked:
			nacked = true
			msg.Nack()
			return nil, errors.New("nacked")
		case msg.UUID == "ack":
			msg.Ack()
			<-msg.Context().Done()
			return nil, errors.New("failed after the ack")
		}
		return []*message.Message{message.NewMessage(msg.UUID, nil)}, nil
	})
	r.publish(message.NewMessage("nack", nil))
	r.publish(message.NewMessage("ack", nil))
	eventually(t, "both are settled", func() bool { return len(dead.in("orders.dlq")) == 1 && len(r.outs.in("out")) == 1 })
	testkit.Equal(t, "placed", dead.in("orders.dlq")[0].UUID, "ack")
}

func masking(t *testing.T, mask func(string) string) *privacy.Redactor {
	return testkit.Must(privacy.New(privacy.Rules{Mask: mask}))
}

// Feature D14: masks see every text and every value before any sink; where one panics the value is withheld.
func TestQueueMasks(t *testing.T) {
	hide := func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	for _, mask := range []func(string) string{hide, func(string) string { panic("hunter2") }} {
		dead := &sink{}
		msg := message.NewMessage("id", []byte("hunter2 in the payload stays"))
		msg.Metadata["secret"] = "hunter2"
		queue := newQueue(dead, QueueConfig{
			Shared: observe.Shared{Privacy: masking(t, mask)}, MaskMetadata: func(_, value string) string { return mask(value) },
		})
		testkit.NoError(t, queue.Place(msg, panicking(errors.New("password=hunter2"))))
		letter := dead.in("unknown.dlq")[0]
		for key, value := range letter.Metadata {
			testkit.Check(t, !strings.Contains(value, "hunter2"), "%s still tells: %q", key, value)
		}
		testkit.Check(t, string(letter.Payload) == "hunter2 in the payload stays", "payload %q", letter.Payload)
	}
}

// Feature D4: after the deadline of the message's context every sink still has its one try.
func TestPlaceAfterDeadlineTriesFallbacks(t *testing.T) {
	last := &sink{}
	queue := testkit.Must(
		NewQueue(&sink{refuse: func(int, string, *message.Message) error { return errors.New("down") }}, QueueConfig{
			Fallbacks: []Sink{{Publisher: last}},
		}))
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	testkit.NoError(t, queue.Place(message.NewMessageWithContext(ctx, "id", nil), errors.New("too slow")))
	testkit.Check(t, last.topics() == "unknown.dlq:1", "placed in %q", last.topics())
}

// throughHeaders sends msg as NATS does: names that are none are dropped, newlines become spaces, spaces at the ends
// go, and an id among the metadata replaces the message's.
func throughHeaders(msg *message.Message) *message.Message {
	header := http.Header{keyWatermillID: {msg.UUID}}
	for key, value := range msg.Metadata {
		header[key] = []string{value}
	}
	var wire bytes.Buffer
	_ = header.Write(&wire) // which takes anything
	back := message.NewMessage("", msg.Payload)
	for lines := textproto.NewReader(bufio.NewReader(&wire)); ; {
		line, err := lines.ReadLine()
		if err != nil {
			return back
		}
		key, value, _ := strings.Cut(line, ":")
		if value = strings.TrimSpace(value); key == keyWatermillID {
			back.UUID = value
		} else {
			back.Metadata[key] = value
		}
	}
}

// Feature D1, H1: everything that a letter tells comes back over a transport with headers, and the original untouched:
// three attempts are three, a stack has its lines, and a key that is no text is base64.
func TestLetterSurvivesHeaders(t *testing.T) {
	l := sampleLetter()
	l.Failure.Description = "first: C:\\new\r\nsecond\n"
	l.Failure.Stack = "main.handle(...)\n\tmain.go:1 +0x1d\nmain.main()\n\tmain.go:9\n"
	l.Failure.Type, l.Failure.Reason, l.Failure.Node = `"quoted"`, " with spaces ", "host\x7f"
	l.Origin.Topic, l.Origin.Handler, l.Redrive.By = "orders\neu", " billing", "ada\nlovelace"
	for _, cause := range []string{"timed out\nafter 3 s", `said "no"`, "ünïcode \x01"} {
		l.Failure.History = append(l.Failure.History, classify.Attempt{At: longAgo, Class: classify.ClassTransient, Error: cause})
	}
	encoded := l.Encode()
	for key, value := range encoded.Metadata {
		testkit.Check(t, isLine(value) && isHeaderName(key), "%s is no line: %q", key, value)
	}
	testkit.Equal(t, "the key", encoded.Metadata[KeyOriginalKey]+encoded.Metadata[KeyOriginalKey+Base64Suffix], "/wBr")
	got := testkit.Must(Decode(throughHeaders(encoded)))
	testkit.Check(t, got.Original.Equals(l.Original), "the original is %v %v", got.Original.UUID, got.Original.Metadata)
	got.Original, l.Original = nil, nil
	want, have := fmt.Sprintf("%+v", l), fmt.Sprintf("%+v", got)
	testkit.Check(t, want == have, "decoded\n%s\nwant\n%s", have, want)
}

// Feature H1, promise P2: ids and metadata that headers would change or lose come back as they were, and so they do
// from a stage.
func TestOriginalSurvivesHeaders(t *testing.T) {
	for name, original := range map[string]*message.Message{
		"newline in a value": carrying("m", message.Metadata{"k": "a\nb\r\nc"}),
		"bytes":              carrying("m", message.Metadata{"k": "\xff\x00\xfe"}),
		"key with a space":   carrying("m", message.Metadata{"a key": "v", "a": "other"}),
		"key with a newline": carrying("m", message.Metadata{"a\nb": "v"}),
		"key not ASCII":      carrying("m", message.Metadata{"schlüssel": "wört"}),
		"key empty":          carrying("m", message.Metadata{"": "v"}),
		"long value":         carrying("m", message.Metadata{"k": strings.Repeat("v\n", 32<<10)}),
		"reserved key":       carrying("m", message.Metadata{keyWatermillID: "another"}),
		"orders to NATS":     carrying("m", message.Metadata{"Nats-Rollup": "all", "nats-ttl": "1s", "Nats-Msg-Id": "seen"}),
		"id with a newline":  carrying("a\nb", nil),
		"id of bytes":        carrying("\xff\xfe", nil),
	} {
		l := Letter{Original: original, Failure: Failure{Class: classify.ClassPermanent, Stack: strings.Repeat("frame\n", 4000)}}
		encoded := l.Encode()
		for key := range encoded.Metadata {
			testkit.Check(t, !isOrder(key), "%s: the letter carries %q", name, key)
		}
		got := Read(throughHeaders(encoded))
		testkit.Check(t, got.Original.UUID == original.UUID && maps.Equal(got.Original.Metadata, original.Metadata),
			"%s: id %q, metadata %.100q", name, got.Original.UUID, got.Original.Metadata)
		staged := throughHeaders(encoded)
		unpackInto(staged)
		if staged.UUID != original.UUID || !maps.Equal((*inner)(nil).ProducerMetadata(staged.Metadata), original.Metadata) {
			t.Errorf("%s, from a stage: id %q, metadata %.100q", name, staged.UUID, staged.Metadata)
		}
		if back := got.Redriven("ada", "campaign", longAgo); back.Metadata[KeyOriginalMetadata] != "" || back.Metadata["Nats-Rollup"] != original.Metadata["Nats-Rollup"] {
			t.Errorf("%s: redriven with %.100q", name, back.Metadata)
		}
	}
}

func carrying(id string, metadata message.Metadata) *message.Message {
	msg := message.NewMessage(id, []byte("payload"))
	if metadata != nil {
		msg.Metadata = metadata
	}
	return msg
}

// Feature D6, H1: a text of any bytes is one line within its limit, and reads back as boundedtext would have it.
func TestOneLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`["\\\n a-c\x00-\x1f]{0,300}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		limit := rapid.IntRange(-1, 400).Draw(t, "limit")
		line := oneLine(text, limit)
		testkit.Require(t, len(line) <= max(limit, 0) && isLine(line), "%q within %d", line, limit)
		whole := strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
		back := fromLine(line)
		testkit.Require(t, limit < 6*len(text)+2 || back == whole, "%q reads back %q, not %q", line, back, whole)
		testkit.Require(t, limit < 100 || len(text) == 0 || len(line) >= min(limit, len(text))/8,
			"%d bytes of %d are kept within %d", len(line), len(text), limit)
	})
}

// Feature D1: a letter that waits is read by every later version as it was written.
func TestWaitingLetters(t *testing.T) {
	const two = "[{2026-01-02 03:04:05.000000678 +0000 UTC transient connection refused} {2026-01-02 03:04:06 +0000 UTC unknown \"odd\" text}]"
	files, err := filepath.Glob("testdata/letters/*.json")
	testkit.Require(t, err == nil && len(files) > 0, "%v %v", files, err)
	for _, file := range files {
		raw := testkit.Must(os.ReadFile(file))
		msg := message.NewMessage("m", nil)
		testkit.NoError(t, json.Unmarshal(raw, &msg.Metadata))
		l := testkit.Must(Decode(msg))
		if f := l.Failure; fmt.Sprint(f.History) != two || f.Stack != "main.handle(...)\n\tmain.go:1\n" || f.Description != "first\nsecond C:\\new \"quoted\"" || f.Attempts != 2 {
			t.Errorf("%s: %+v", file, f)
		}
		if l.Origin.Topic != "orders" || l.Origin.Handler != "billing" || string(l.Origin.Key) != "\xff\x00k" || !maps.Equal(l.Original.Metadata, message.Metadata{"tenant": "acme"}) {
			t.Errorf("%s: %+v of %v", file, l.Origin, l.Original.Metadata)
		}
	}
}
