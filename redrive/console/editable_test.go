package console

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// asBrowsersSend is what a browser sends for the text of a text area.
func asBrowsersSend(text string) string {
	return strings.ReplaceAll(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n", "\r\n")
}

// Feature V11: a payload that can be edited comes back byte for byte if nothing is changed. Others are refused.
func TestEditable(t *testing.T) {
	for _, text := range []string{"", "{}", "\n\n{\n\t\"a\": \"Zoë \u202e\"\n}\n", "a\r\nb\r\n", "\ufeffx", "90071992547409931.10", "a\u2028b\u0085"} {
		err := checkEditable([]byte(text))
		testkit.Check(t, err == nil, "%q: %v", text, err)
		testkit.Returns(t, text)(typedBack([]byte(text), asBrowsersSend(text)))
	}
	for text, want := range map[string]error{
		"\xff": errBinary, "a\x00": errControl, "\x1b[1m": errControl, "\x7f": errControl, "a\rb": errLineEnds, "a\r\nb\n": errLineEnds, "\r": errLineEnds,
		strings.Repeat("x", maxEditable+1): errLarge,
	} {
		testkit.Is(t, checkEditable([]byte(text)), want)
	}
}

// Feature V11: what a person types is refused for the same reasons.
func TestTypedBack(t *testing.T) {
	for typed, want := range map[string]error{"\xff": errBinary, "a\x00": errControl, strings.Repeat("x", maxEditable+1): errLarge} {
		testkit.Is(t, testkit.Err(typedBack([]byte("{}"), typed)), want)
	}
	testkit.Returns(t, "a\r\nb\r\nc")(typedBack([]byte("a\r\nb"), "a\nb\nc"))
}

func FuzzTypedBack(f *testing.F) {
	f.Add("a\r\nb")
	f.Fuzz(func(t *testing.T, text string) {
		if checkEditable([]byte(text)) != nil {
			return
		}
		testkit.Returns(t, text)(typedBack([]byte(text), asBrowsersSend(text)))
	})
}
