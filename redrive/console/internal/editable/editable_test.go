package editable

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// browser is what a browser sends for the text of a text area.
func browser(text string) string {
	return strings.ReplaceAll(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n", "\r\n")
}

// Feature V11: a payload that can be edited comes back byte for byte if the person changes nothing. All others are
// refused.
func TestCheck(t *testing.T) {
	for _, text := range []string{"", "{}", "\n\n{\n\t\"a\": \"Zoë \u202e\"\n}\n", "a\r\nb\r\n", "\ufeffx", "90071992547409931.10", "a\u2028b\u0085"} {
		if err := Check([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got, err := Back([]byte(text), browser(text)); err != nil || got != text {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]error{
		"\xff": ErrBinary, "a\x00": ErrControl, "\x1b[1m": ErrControl, "\x7f": ErrControl, "a\rb": ErrLineEnds, "a\r\nb\n": ErrLineEnds, "\r": ErrLineEnds,
		strings.Repeat("x", MaxBytes+1): ErrLarge,
	} {
		if err := Check([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", text, err, want)
		}
	}
}

// Feature V11: what a person types is refused for the same reasons.
func TestBack(t *testing.T) {
	for typed, want := range map[string]error{"\xff": ErrBinary, "a\x00": ErrControl, strings.Repeat("x", MaxBytes+1): ErrLarge} {
		if _, err := Back([]byte("{}"), typed); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", typed, err, want)
		}
	}
	if got, err := Back([]byte("a\r\nb"), "a\nb\nc"); err != nil || got != "a\r\nb\r\nc" {
		t.Errorf("%q %v", got, err)
	}
}

func FuzzBack(f *testing.F) {
	f.Add("a\r\nb")
	f.Fuzz(func(t *testing.T, text string) {
		if Check([]byte(text)) != nil {
			return
		}
		if got, err := Back([]byte(text), browser(text)); err != nil || got != text {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
	})
}
