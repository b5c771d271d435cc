package printable_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/operate/printable"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature V11: what a page shows of a payload is what is in the bytes.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		in   string
		want printable.Format
		is   printable.Format
		text string
	}{
		{"", printable.Auto, "", ""},
		{`{"n":12345678901234567890.10,"n":1e400,"a":[1,"ä\u00e9",null,{}]}`, printable.Auto, printable.JSON,
			"{\n  \"n\": 12345678901234567890.10,\n  \"n\": 1e400,\n  \"a\": [\n    1,\n    \"ä\\u00e9\",\n    null,\n    {}\n  ]\n}"},
		{"[\"\u202e\"]", printable.Auto, printable.JSON, "[\n  \"\\u202e\"\n]"},
		{"[\"\xff\"]", printable.Auto, printable.Hex, "00000000  5b 22 ff 22 5d                                    |[\".\"]|\n"},
		{` 1`, printable.Auto, printable.JSON, `1`},
		{`{"a":1}`, printable.Plain, printable.Plain, `{"a":1}`},
		{`{"a":1}`, printable.Hex, printable.Hex, "00000000  7b 22 61 22 3a 31 7d                              |{\"a\":1}|\n"},
		{"{\"a\":1}\n{\"a\":2}", printable.Auto, printable.Plain, "{\"a\":1}\n{\"a\":2}"},
		{`{"a":1,}`, printable.JSON, printable.Plain, `{"a":1,}`},
		{"name\tvalue\r\n", printable.Auto, printable.Plain, "name\tvalue\n"},
		{"a\u202eb", printable.Auto, printable.Plain, `a\u202eb`},
		{"a\x00b", printable.Auto, printable.Hex, "00000000  61 00 62                                          |a.b|\n"},
		{"caf\xe9", printable.Plain, printable.Plain, `caf\xe9`},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), printable.Auto, printable.Plain,
			strings.Repeat("[", 65) + strings.Repeat("]", 65)}, // its indents would be most of it
	} {
		v := printable.Payload([]byte(c.in), c.want, 200, 200, true)
		testkit.Check(t, v.Format == c.is && v.Text == c.text && !v.Cut,
			"%q as %s is %s (cut %v):\n%s\nwant %s:\n%s", c.in, c.want, v.Format, v.Cut, v.Text, c.is, c.text)
	}
}

// Feature V11: a payload of any size and shape is bounded, and the view says that it is cut.
func TestOfIsBounded(t *testing.T) {
	noise := make([]byte, 64<<10)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for name, in := range map[string][]byte{
		"deep":    []byte(strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000)),
		"objects": []byte(strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat(`}`, 9_000)),
		"wide":    []byte("[" + strings.Repeat("1,", 20_000) + "1]"),
		"long":    []byte(`{"a":"` + strings.Repeat("x", 90_000) + `","b":2}`),
		"keys":    []byte(`{"` + strings.Repeat("k", 90_000) + `":1}`),
		"many":    []byte("[" + strings.Repeat(`"`+strings.Repeat("y", 2000)+`",`, 40) + "1]"),
		"number":  []byte(strings.Repeat("9", 90_000)),
		"text":    []byte(strings.Repeat("word ", 10_000)),
		"noise":   noise,
	} {
		for _, kind := range []printable.Format{printable.Auto, printable.Plain, printable.Hex} {
			for _, whole := range []bool{true, false} {
				v := printable.Payload(in, kind, 32<<10, 8<<10, whole)
				testkit.Check(t, v.Cut, "%s as %s: it is not said that it is cut", name, kind)
				text := v.Text
				testkit.Check(t, len(text) <= 200_000, "%s as %s: %d bytes", name, kind, len(text))
			}
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}]}`), true)
	f.Add([]byte("\xff\x00"), false)
	f.Fuzz(func(t *testing.T, in []byte, whole bool) {
		for _, kind := range []printable.Format{printable.Auto, printable.JSON, printable.Plain, printable.Hex} {
			obeyed := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
			shown := printable.Payload(in, kind, 32<<10, 8<<10, whole).Text
			testkit.Require(t, strings.IndexFunc(shown, obeyed) < 0, "%q as %s shows %q", in, kind, shown)
		}
	})
}
