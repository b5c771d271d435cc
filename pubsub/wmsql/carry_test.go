package wmsql_test

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// differs tells in what two messages differ.
func differs(got, want *message.Message) string {
	switch {
	case got.UUID != want.UUID:
		return fmt.Sprintf("id %.100q, want %.100q", got.UUID, want.UUID)
	case !bytes.Equal(got.Payload, want.Payload):
		return fmt.Sprintf("payload %.100q, want %.100q", got.Payload, want.Payload)
	case !maps.Equal(got.Metadata, want.Metadata):
		return fmt.Sprintf("metadata %.300q, want %.300q", got.Metadata, want.Metadata)
	}
	return ""
}

// through publishes messages and takes them again.
func (b *bench) through(messages ...*message.Message) []*message.Message {
	b.Helper()
	testkit.NoError(b, b.pub.Publish(b.topic, messages...))
	return b.take(b.topic, len(messages))
}

func with(id string, metadata message.Metadata, payload []byte) *message.Message {
	msg := message.NewMessage(id, payload)
	maps.Copy(msg.Metadata, metadata)
	return msg
}

// Promise P2, decision 5: whatever the columns cannot hold comes back as it was.
func TestMessageSurvives(t *testing.T) {
	many := message.Metadata{}
	for i := range 1000 {
		many[fmt.Sprintf("key-%d", i)] = strings.Repeat("x", 20)
	}
	sent := []*message.Message{
		with(strings.Repeat("i", 36), nil, []byte{}),
		with(strings.Repeat("i", 37), nil, []byte("x")),
		with(strings.Repeat("ü", 36), nil, []byte("characters, not bytes")),
		with(strings.Repeat("i", 300), nil, make([]byte, 900<<10)),
		with(strings.Repeat("\xff", 40), message.Metadata{"a": "\xff", "a-b64": "text", "a-b64-b64": "/w=="}, []byte("x")),
		with("many", many, []byte("x")),
		with("large", message.Metadata{"large": strings.Repeat("x", 100<<10), "binary": strings.Repeat("\xff", 100<<10)}, []byte("x")),
		with("sha-forged", message.Metadata{wmsql.KeyCarried: "no json", "x": "\xff"}, []byte("x")),
		with(strings.Repeat("f", 40), message.Metadata{wmsql.KeyCarried: `{"id":"another"}`}, []byte("x")),
	}
	onEach(t, func(t *testing.T, b *bench) {
		for i, got := range b.through(sent...) {
			testkit.Equal(t, fmt.Sprint("message ", i), differs(got, sent[i]), "")
		}
	})
}

// Promise P2, as a property of any message; stock reads ours, and ours stock's, where no care is needed.
func TestMessageSurvivesProperty(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		stock := b.stockPublisher(b.stockSchema())
		ours := b.messages(b.subscriber(func(c *wmsql.SubscriberConfig) { c.PollInterval = time.Millisecond }))
		theirs := b.messages(b.stockSubscriber(wsql.SubscriberConfig{ConsumerGroup: "stock", PollInterval: time.Millisecond}))
		next := func(messages <-chan *message.Message) *message.Message {
			msg := testkit.Receive(t, "the message", messages)
			msg.Ack()
			return msg
		}
		rapid.Check(t, func(t *rapid.T) {
			msg, plain := drawMessage(t)
			var pub message.Publisher = b.pub
			if plain && rapid.Bool().Draw(t, "stock publishes") {
				pub = stock
			}
			testkit.NoError(t, pub.Publish(b.topic, msg))
			read, byStock := differs(next(ours), msg), differs(next(theirs), msg)
			testkit.Require(t, read == "", "%s", read)
			testkit.Require(t, byStock == "" || !plain, "by stock: %s", byStock)
		})
	})
}

// drawMessage draws a message, and reports whether it is one that needs no care.
func drawMessage(t *rapid.T) (msg *message.Message, plain bool) {
	plain = rapid.Bool().Draw(t, "plain")
	text := rapid.StringOfN(rapid.RuneFrom([]rune("abä-\U0001F600\"\\<&b64 ")), 0, 36, -1)
	key := rapid.OneOf(text, rapid.SampledFrom([]string{"k", "k-b64", "k-b64-b64", "-b64"}))
	if !plain {
		binary := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "bytes")) })
		text = rapid.OneOf(text, binary, rapid.SampledFrom([]string{"/w==", "\x00", "\xff", `{"metadata-b64":[["aw==","aw=="]]}`}))
		key = rapid.OneOf(key, binary, rapid.SampledFrom([]string{wmsql.KeyCarried}))
	}
	payload := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload")
	metadata := rapid.MapOfN(key, text, 0, 6).Draw(t, "metadata")
	return with(text.Draw(t, "id"), metadata, payload), plain
}

// A producer's metadata under the reserved name comes as it is; an id only where its hash stands in the column.
func TestForgedCarried(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		stock := b.stockPublisher(b.stockSchema())
		for i, value := range []string{`{"id":"admin"}`, `{`, `{}`, `null`, `{"id-b64":"/w=="}`, `{"metadata-b64":[["*","*"]]}`} {
			msg := with(fmt.Sprint(i), message.Metadata{wmsql.KeyCarried: value}, []byte("x"))
			testkit.NoError(t, stock.Publish(b.topic, msg))
		}
		for i, msg := range b.take(b.topic, 6) {
			testkit.Check(t, msg.UUID == fmt.Sprint(i) && len(msg.Metadata) == 1, "%q %q", msg.UUID, msg.Metadata)
		}
	})
}
