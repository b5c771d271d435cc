package avro_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/decode/avro"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func letter(payload string) (l letters.Letter) {
	l.Original = message.NewMessage("1", []byte(payload))
	return l
}

// specified is the record of Avro's specification, {"a": 27, "b": "foo"}, with the header of schema 7.
const specified = "\x00\x00\x00\x00\x07" + "\x36\x06foo"

// Feature V17: Avro is shown as JSON, and what was edited is Avro again, of the same schema.
func TestFiles(t *testing.T) {
	d := avro.Files("testdata")
	text, mediaType, err := d.Decode(t.Context(), letter(specified))
	testkit.Check(t, err == nil && mediaType == "application/json" && text == "{\n  \"a\": 27,\n  \"b\": \"foo\"\n}", "%q %s %v", text, mediaType, err)
	same, err := d.Encode(t.Context(), letter(specified), text)
	testkit.Check(t, err == nil && string(same) == specified, "%q %v", same, err)
	edited, err := d.Encode(t.Context(), letter(specified), strings.Replace(text, "foo", "foobar", 1))
	testkit.Check(t, err == nil && string(edited) == "\x00\x00\x00\x00\x07\x36\x0cfoobar", "%q %v", edited, err)
	for says, typed := range map[string]string{"received: '.'": `{"a":27.5,"b":"x"}`, "more than one": text + "{}", "only found 1 of 2": `{"a":1}`} {
		_, err := d.Encode(t.Context(), letter(specified), typed)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), says), "%s: %v", typed, err)
	}
	text, mediaType, err = d.Decode(t.Context(), letter(`{"plain":1}`))
	testkit.Check(t, text+mediaType == "" && err == nil, "what has no header: %q %q %v", text, mediaType, err)
}

// Feature V17: bytes of an enemy are an error, and neither a panic nor an answer without end.
func TestHostile(t *testing.T) {
	d := avro.Files("testdata")
	for name, payload := range map[string]string{
		"no schema": "\x00\x00\x00\x00\x09x", "cut": specified[:8], "more": specified + "x",
		"a text longer than all":  "\x00\x00\x00\x00\x07\x36\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a text shorter than all": "\x00\x00\x00\x00\x07\x36\x01", "a number without end": "\x00\x00\x00\x00\x07" + strings.Repeat("\xff", 1000),
		"nulls without number": "\x00\x00\x00\x00\x08\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"too long":             specified + strings.Repeat("x", 256<<10),
	} {
		text, _, err := d.Decode(t.Context(), letter(payload))
		testkit.Check(t, err != nil, "%s: %.100q", name, text)
	}
	for _, n := range []int{250 << 10, 4000} {
		_, _, err := d.Decode(t.Context(), letter("\x00\x00\x00\x00\x08"+strings.Repeat("\x02", n)))
		testkit.Check(t, err != nil && len(err.Error()) < 1000, "a value as deep as it is long: %.100v", err)
	}
}

// Feature V17: the registry that the owner names is asked once for a schema, whatever a payload says.
func TestRegistry(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch user, _, _ := r.BasicAuth(); {
		case user != "ann":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/schemas/ids/7":
			fmt.Fprint(w, `{"schema":"{\"type\":\"record\",\"name\":\"test\",\"fields\":[{\"name\":\"a\",\"type\":\"long\"},{\"name\":\"b\",\"type\":\"string\"}]}"}`)
		case r.URL.Path == "/schemas/ids/8":
			http.Redirect(w, r, "/schemas/ids/7", http.StatusFound)
		case r.URL.Path == "/schemas/ids/9":
			_, _ = w.Write(append([]byte(`{"schema":"`), bytes.Repeat([]byte("x"), 2<<20)...))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	d := avro.Registry(strings.Replace(server.URL, "://", "://ann:secret@", 1)+"/", nil)
	for range 2 {
		text, _, err := d.Decode(t.Context(), letter(specified))
		testkit.Check(t, err == nil && strings.Contains(text, `"b": "foo"`), "%q %v", text, err)
	}
	testkit.Check(t, asked.Load() == 1, "it was asked %d times", asked.Load())
	for id, says := range map[string]string{"\x08": "302", "\x09": "read the answer", "\x0a": "404"} {
		_, _, err := d.Decode(t.Context(), letter("\x00\x00\x00\x00"+id+"x"))
		testkit.Check(t, err != nil && strings.Contains(err.Error(), says), "%q: %v", id, err)
	}
	server.Close()
	_, _, err := d.Decode(t.Context(), letter("\x00\x00\x00\x00\x0bx"))
	testkit.Check(t, err != nil && !strings.Contains(err.Error(), "secret"), "%v", err)
}
