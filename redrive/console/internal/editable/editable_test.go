package editable

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// browser is what a browser sends for the text of a text area.
func browser(text string) string {
	return strings.ReplaceAll(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n", "\r\n")
}

// Feature V11: a payload that can be edited comes back byte for byte if nothing is changed. Others are refused.
func TestCheck(t *testing.T) {
	for _, text := range []string{"", "{}", "\n\n{\n\t\"a\": \"Zoë \u202e\"\n}\n", "a\r\nb\r\n", "\ufeffx", "90071992547409931.10", "a\u2028b\u0085"} {
		err := Check([]byte(text))
		testkit.Check(t, err == nil, "%q: %v", text, err)
		testkit.Returns(t, text)(Back([]byte(text), browser(text)))
	}
	for text, want := range map[string]error{
		"\xff": ErrBinary, "a\x00": ErrControl, "\x1b[1m": ErrControl, "\x7f": ErrControl, "a\rb": ErrLineEnds, "a\r\nb\n": ErrLineEnds, "\r": ErrLineEnds,
		strings.Repeat("x", MaxBytes+1): ErrLarge,
	} {
		testkit.Is(t, Check([]byte(text)), want)
	}
}

// Feature V11: what a person types is refused for the same reasons.
func TestBack(t *testing.T) {
	for typed, want := range map[string]error{"\xff": ErrBinary, "a\x00": ErrControl, strings.Repeat("x", MaxBytes+1): ErrLarge} {
		testkit.Is(t, testkit.Err(Back([]byte("{}"), typed)), want)
	}
	testkit.Returns(t, "a\r\nb\r\nc")(Back([]byte("a\r\nb"), "a\nb\nc"))
}

func FuzzBack(f *testing.F) {
	f.Add("a\r\nb")
	f.Fuzz(func(t *testing.T, text string) {
		if Check([]byte(text)) != nil {
			return
		}
		testkit.Returns(t, text)(Back([]byte(text), browser(text)))
	})
}
