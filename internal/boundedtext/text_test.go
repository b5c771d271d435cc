package boundedtext_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cut = "…[cut, "

// texts are what errors and metadata really hold: text, bytes, other encodings, NULs, and mixtures cut anywhere.
func texts() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"\x00", "\xff", "\x80", "é", "€", "😀", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", cut}),
		rapid.Map(rapid.IntRange(0, 300), func(n int) string { return strings.Repeat("\x80", n) }),
		rapid.Map(rapid.IntRange(0, 300), func(n int) string { return strings.Repeat("\x00", n) }),
	)
	return rapid.Map(rapid.SliceOfN(piece, 0, 8), func(p []string) string { return strings.Join(p, "") })
}

func clean(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// checkText is the promise of Text, for the property and for the fuzzer.
func checkText(t interface{ Fatalf(string, ...any) }, s string, limit int) {
	got := boundedtext.Text(s, limit)
	if !clean(got) {
		t.Fatalf("not clean: %q of %q within %d", got, s, limit)
	}
	if len(got) > max(limit, 0) {
		t.Fatalf("%d bytes of %q within %d", len(got), s, limit)
	}
	if len(s) <= limit && clean(s) && got != s {
		t.Fatalf("changed %q to %q", s, got)
	}
	if again := boundedtext.Text(got, limit); again != got {
		t.Fatalf("%q changed again to %q", got, again)
	}
	whole := boundedtext.Text(s, 3*len(s)+1) // clean, and never cut: a byte grows to three at the most
	if strings.HasPrefix(whole, got) {
		if cutShort := len(got) < len(whole); cutShort && limit >= 64 {
			t.Fatalf("the cut is not marked: %q of %q", got, s)
		}
		return
	}
	head := got[:max(strings.LastIndex(got, cut), 0)]
	if !strings.HasPrefix(whole, head) || !strings.HasSuffix(got, " bytes in all]") {
		t.Fatalf("%q is not the head of %q with a mark", got, s)
	}
	if room := limit - (len(got) - len(head)); len(s) > room+utf8.UTFMax && head == "" && room >= utf8.UTFMax {
		t.Fatalf("%d bytes of room, but no head of %q", room, s)
	}
}

// Feature D6: text is clean, within its limit, unchanged where it can be; else the head is kept and the cut marked.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkText(t, texts().Draw(t, "s"), rapid.IntRange(-2, 400).Draw(t, "limit"))
	})
}

// Feature D6: the cut tells the size of the whole, and splits no rune.
func TestTextCut(t *testing.T) {
	for _, row := range []struct {
		s     string
		limit int
		want  string
	}{
		{"short", 5, "short"},
		{"short", 0, ""},
		{"éé", 3, "é"},
		{"a\x00b", 10, "a\uFFFDb"},
		{"a\xff\xfeb", 10, "a\uFFFDb"},
		{strings.Repeat("x", 100), 40, strings.Repeat("x", 14) + cut + "100 bytes in all]"},
		{strings.Repeat("é", 100), 40, strings.Repeat("é", 7) + cut + "200 bytes in all]"},
		{strings.Repeat("x", 5<<20), 31, "x" + cut + "5242880 bytes in all]"},
		{strings.Repeat("\x00", 100), 40, strings.Repeat("\uFFFD", 4) + cut + "100 bytes in all]"}, // grows when it is cleaned
		{"ab" + strings.Repeat("\x80", 5<<20), 64, "ab\uFFFD" + cut + "5242882 bytes in all]"},
	} {
		if got := boundedtext.Text(row.s, row.limit); got != row.want {
			t.Errorf("%.20q within %d: %q, want %q", row.s, row.limit, got, row.want)
		}
	}
}

type (
	evilError  struct{}
	evilString struct{}
)

func (evilError) Error() string   { panic("Error") }
func (evilString) String() string { panic(evilString{}) }

// Feature D6: an error that panics when it is asked for its text is named by its type, within the limit too.
func TestError(t *testing.T) {
	var none *evilPointer
	for want, err := range map[string]error{
		"": nil, "plain": errors.New("plain"), "a\uFFFD": errors.New("a\x00"),
		"boundedtext_test.evilError (its Error method panicked)":    evilError{},
		"*boundedtext_test.evilPointer (its Error method panicked)": none,
	} {
		if got := boundedtext.Error(err, 100); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := boundedtext.Error(evilError{}, 12); got != "boundedtext_" {
		t.Errorf("got %q", got)
	}
	if got := boundedtext.Error(errors.New(strings.Repeat("x", 5<<20)), 256); len(got) != 256 || !strings.HasSuffix(got, "5242880 bytes in all]") {
		t.Errorf("got %q", got)
	}
}

type evilPointer struct{ text string }

func (e *evilPointer) Error() string { return e.text }

// Feature D6: any value has a text; nothing it does when asked escapes.
func TestValue(t *testing.T) {
	for want, v := range map[string]any{
		"<nil>": nil, "boom": "boom", "7": 7, "{N:1 S:a}": struct {
			N int
			S string
		}{1, "a"}, "e": errors.New("e"), "[1 2]": []int{1, 2},
		"boundedtext_test.evilString (its String method panicked)": evilString{},
		"boundedtext_test.evilError (its Error method panicked)":   evilError{},
	} {
		if got := boundedtext.Value(v, 100); got != want {
			t.Errorf("%T: got %q, want %q", v, got, want)
		}
	}
}
