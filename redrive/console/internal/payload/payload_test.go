package payload_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/console/internal/payload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outline writes a tree as one line.
func outline(n *payload.Node) string {
	text := n.Text
	if n.Container() {
		parts := make([]string, len(n.Members))
		for i, member := range n.Members {
			parts[i] = outline(member)
		}
		if n.More {
			parts = append(parts, "...")
		}
		text = n.Brackets()[:1] + strings.Join(parts, " ") + n.Brackets()[1:]
	}
	if n.Key != "" {
		return n.Key + ":" + text
	}
	return text
}

func show(v payload.View) string {
	switch v.Kind {
	case payload.Tree:
		return outline(v.Root)
	case payload.Text:
		return v.Text
	case payload.Hex:
		var b strings.Builder
		for _, l := range v.Lines {
			fmt.Fprintf(&b, "%s %s %s\n", l.Offset, l.Bytes, l.Text)
		}
		return b.String()
	}
	return ""
}

// Feature V11: what a page shows of a payload is what is in the bytes.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		in   string
		want payload.Kind
		kind payload.Kind
		text string
	}{
		{"", payload.Auto, "", ""},
		{`{"n":12345678901234567890.10,"n":1e400,"a":[1,"ä\u00e9",null,true,{}]}`, payload.Auto, payload.Tree,
			`{"n":12345678901234567890.10 "n":1e400 "a":[1 "ä\u00e9" null true {}]}`},
		{"[\"\u202e\", \"\xff\"]", payload.Auto, payload.Tree, `["\u202e" "\xff"]`},
		{` 1 `, payload.Auto, payload.Tree, `1`},
		{`{"a":1}`, payload.Text, payload.Text, `{"a":1}`},
		{`{"a":1}`, payload.Hex, payload.Hex, "00000000 7b 22 61 22 3a 31 7d {\"a\":1}\n"},
		{"{\"a\":1}\n{\"a\":2}", payload.Auto, payload.Text, "{\"a\":1}\n{\"a\":2}"},
		{`{"a":1`, payload.Auto, payload.Text, `{"a":1`},
		{`{"a":1,}`, payload.Tree, payload.Text, `{"a":1,}`},
		{"name\tvalue\r\n", payload.Auto, payload.Text, "name\tvalue\n"},
		{"a\u202eb", payload.Auto, payload.Text, `a\u202eb`},
		{"a\x00b", payload.Auto, payload.Hex, "00000000 61 00 62 a.b\n"},
		{"caf\xe9", payload.Auto, payload.Hex, "00000000 63 61 66 e9 caf.\n"},
		{"caf\xe9", payload.Text, payload.Text, `caf\xe9`},
		{"0123456789abcdef\x1b", payload.Hex, payload.Hex,
			"00000000 30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66 0123456789abcdef\n00000010 1b .\n"},
	} {
		v := payload.Of([]byte(c.in), c.want, true)
		testkit.Check(t, v.Kind == c.kind && show(v) == c.text && !v.Cut,
			"%q as %s is %s (cut %v):\n%s\nwant %s:\n%s", c.in, c.want, v.Kind, v.Cut, show(v), c.kind, c.text)
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
		for _, kind := range []payload.Kind{payload.Auto, payload.Text, payload.Hex} {
			for _, whole := range []bool{true, false} {
				v := payload.Of(in, kind, whole)
				testkit.Check(t, v.Cut, "%s as %s: it is not said that it is cut", name, kind)
				text := show(v)
				testkit.Check(t, len(text) <= 200_000, "%s as %s: %d bytes", name, kind, len(text))
			}
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}]}`), true)
	f.Add([]byte("\xff\x00"), false)
	f.Fuzz(func(t *testing.T, in []byte, whole bool) {
		for _, kind := range []payload.Kind{payload.Auto, payload.Tree, payload.Text, payload.Hex} {
			obeyed := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
			shown := show(payload.Of(in, kind, whole))
			testkit.Require(t, strings.IndexFunc(shown, obeyed) < 0, "%q as %s shows %q", in, kind, shown)
		}
	})
}
