package screen_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate/printable"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a terminal obeys becomes text, and everything else stays as it is.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain 123 ~":                     "plain 123 ~",
		"Zoë 世界 🙂":                        "Zoë 世界 🙂",
		"\x1b[2J":                         `\x1b[2J`,
		"\u009b2K":                        `\u009b2K`,
		"a\x9bb\xff":                      `a\x9bb\xff`,
		"\u202eabc\u2066":                 `\u202eabc\u2066`,
		"a\u200bb\ufeff":                  `a\u200bb\ufeff`,
		"one\r\ntwo\tdone":                `one\r\ntwo\tdone`,
		"\U000e0041tag":                   `\U000e0041tag`,
		"a\u00a0b":                        `a\u00a0b`,
		"e\u0301":                         "e\u0301",
		"z" + strings.Repeat("\u0301", 4): "z\u0301\u0301" + `\u0301\u0301`,
		"\u2028\u2029\x00\x7f":            `\u2028\u2029\x00\x7f`,
	} {
		testkit.Equal(t, "", screen.Text(in), want)
	}
	testkit.Equal(t, "", screen.Block("a\tb\r\nc\x1b\rd"), "a\tb\nc\\x1b\\rd")
}

func anyText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.StringMatching("[\x1b\u202e\u009b=+@ -~\u0301\n]*"))
}

// Feature V10: whatever a letter carries, nothing that a terminal obeys comes out, and JSON means what was there.
func TestNothingRawComesOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := anyText().Draw(t, "value")
		var out bytes.Buffer
		s := testkit.Must(screen.New(screen.Config{Out: &out, Err: &out, Env: func(string) string { return "" }}))
		s.Line("%s", value)
		s.Lines(value)
		s.Note("%v", value)
		s.Fail(fmt.Errorf("%s", value))
		s.Field(value, value)
		s.Head(value)
		table := &screen.Table{Columns: []screen.Column{{Name: "A"}, {Name: "B", Min: 3}}}
		table.Row(value, screen.Span{Text: value, Style: screen.Red})
		s.Table(table)
		testkit.NoError(t, s.JSON(map[string]string{"v": value}))
		fmt.Fprint(screen.Safely(&out), value)
		for _, format := range []printable.Format{"auto", "text", "hex"} {
			shown := testkit.Must(screen.Payload([]byte(value), format, 20))
			out.WriteString(shown)
		}
		obeyed := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
		testkit.Require(t, strings.IndexFunc(out.String(), obeyed) < 0, "%q comes out of %q", &out, value)
		line, err := screen.Line(value)
		var back string
		if err == nil {
			err = json.Unmarshal(line, &back)
		}
		testkit.Require(t, err == nil && (back == strings.ToValidUTF8(value, "\ufffd") || !utf8.ValidString(value)),
			"%q came back as %q, %v", value, back, err)
	})
}

// No cell is a formula, whatever it begins with.
func TestCell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := anyText().Draw(t, "value")
		cell := printable.Cell(value)
		testkit.Require(t, cell == "" || !strings.ContainsRune("=+-@\t\r", rune(cell[0])),
			"%q becomes the cell %q", value, cell)
	})
}

// A payload is JSON, text or hex, with its numbers as they were, and cut where it is asked to be.
func TestPayload(t *testing.T) {
	for _, c := range []struct {
		in     string
		format printable.Format
		limit  int
		want   string
	}{
		{`{"n":90071992547409931.10}`, "auto", 0, "{\n  \"n\": 90071992547409931.10\n}"},
		{"text\n", "auto", 0, "text\n"},
		{"\x00\x01", "auto", 0, "00000000  00 01                                             |..|\n"},
		{"", "auto", 0, "(empty)"},
		{"äöü", "text", 3, "ä\n… cut: 6 bytes in all; --limit 0 shows the rest"},
		{"ab", "hex", 1, "00000000  61                                                |a|\n… cut: 2 bytes in all; --limit 0 shows the rest"},
	} {
		testkit.Returns(t, c.want)(screen.Payload([]byte(c.in), c.format, c.limit))
	}
	testkit.Says(t, testkit.Err(screen.Payload([]byte("no"), "json", 0)), "--format")
}
