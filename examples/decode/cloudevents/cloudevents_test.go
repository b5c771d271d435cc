package cloudevents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/decode/cloudevents"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func letter(payload string, metadata ...string) (l letters.Letter) {
	l.Original = message.NewMessage("1", []byte(payload))
	for i := 0; i < len(metadata); i += 2 {
		l.Original.Metadata.Set(metadata[i], metadata[i+1])
	}
	return l
}

var structured = []string{"content-type", "application/cloudevents+json; charset=UTF-8"}

// Feature V17: an event is one document, whatever its mode, and what was edited has the mode of the letter.
func TestModes(t *testing.T) {
	for name, c := range map[string]struct {
		l                letters.Letter
		has, from, to    string
		payload, refused string
	}{
		"binary, Kafka": {letter(`{"order":90071992547409931}`, "ce_specversion", "1.0", "ce_type", "shop.paid", "content-type", "application/json"),
			`"type": "shop.paid"`, "90071992547409931", "8", `{"order":8}`, ""},
		"binary, AMQP":         {letter("text", "cloudEvents:specversion", "1.0"), `"data": "text"`, `"text"`, `"new"`, "new", ""},
		"binary, a JSON text":  {letter(`"text"`, "ce-specversion", "1.0"), `"data": "\"text\""`, `\"text\"`, `\"new\"`, `"new"`, ""},
		"binary, bytes":        {letter("\x00\xff", "Ce-Specversion", "1.0"), `"data_base64": "AP8="`, "AP8=", "AP4=", "\x00\xfe", ""},
		"binary, an attribute": {letter("text", "ce_specversion", "1.0", "ce_type", "a"), `"type": "a"`, `"type": "a"`, `"type": "b"`, "", `"type" is metadata`},
		"structured": {letter(`{"specversion":"1.0","type":"a","n":1.10,"data":{"x":1}}`, structured...), `"x": 1`, `"x": 1`, `"x": 2`,
			"{\n  \"data\": {\n    \"x\": 2\n  },\n  \"n\": 1.10,\n  \"specversion\": \"1.0\",\n  \"type\": \"a\"\n}", ""},
		"structured, base64": {letter(`{"specversion":"1.0","data_base64":"eyJ4IjoxfQ=="}`, structured...), `"x": 1`, `"x": 1`, `"x": 2`,
			`{"data_base64":"eyJ4IjoyfQ==","specversion":"1.0"}`, ""},
	} {
		text, mediaType, err := cloudevents.Decode(t.Context(), c.l)
		testkit.Check(t, err == nil && mediaType == cloudevents.MediaType && json.Valid([]byte(text)) && strings.Contains(text, c.has), "%s: %s %v", name, text, err)
		edited, err := cloudevents.Encode(t.Context(), c.l, strings.Replace(text, c.from, c.to, 1))
		if c.refused != "" {
			testkit.Check(t, err != nil && strings.Contains(err.Error(), c.refused), "%s: %v", name, err)
			continue
		}
		testkit.Check(t, err == nil && string(edited) == c.payload, "%s: %q %v", name, edited, err)
	}
}

// Feature V17: what is no event is left as it is, and a broken one is an error.
func TestHostile(t *testing.T) {
	for _, l := range []letters.Letter{letter("x"), letter("", "ce_type", "a"), letter("{}", "content-type", "application/json")} {
		text, mediaType, err := cloudevents.Decode(t.Context(), l)
		testkit.Check(t, text+mediaType == "" && err == nil, "%q %q %v", text, mediaType, err)
	}
	for name, payload := range map[string]string{"cut": `{"specversion":`, "a list": `[1]`, "no base64": `{"data_base64":"%%"}`, "a number": `{"data_base64":1}`,
		"deep": strings.Repeat(`{"a":`, 20_000)} {
		text, _, err := cloudevents.Decode(t.Context(), letter(payload, structured...))
		testkit.Check(t, err != nil, "%s: %.100q", name, text)
	}
	_, err := cloudevents.Encode(t.Context(), letter(`{"specversion":"1.0"}`, structured...), `{"type":"a"}`)
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "specversion is missing"), "%v", err)
}
