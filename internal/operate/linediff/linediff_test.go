package linediff

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func plain(s string) Text { return Text{s, s} }

func drawn(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%c%s", map[Kind]rune{Same: ' ', Gone: '-', Come: '+', Skipped: '~'}[l.Kind], l.Text)
		if l.Kind == Skipped {
			fmt.Fprint(&b, l.Lines)
		}
		b.WriteByte('|')
	}
	return b.String()
}

// Feature V11: a comparison shows each line that changes, with a few lines around it.
func TestCompare(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"", "", ""}, {"a", "a", ""}, {"", "a", "+a|"}, {"a", "", "-a|"}, {"a\nb\nc", "a\nc", " a|-b| c|"},
		{"a\nb\nc", "x\nb\ny", "-a|+x| b|-c|+y|"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9", "1\n2\n3\n4\n5\n6\n7\n8\nx", "~5| 6| 7| 8|-9|+x|"},
		{strings.Repeat("a\n", 600) + "b", strings.Repeat("c\n", 600) + "b", ""},
	} {
		got := drawn(Compare(plain(c.before), plain(c.after)))
		if len(c.before) > 1000 {
			if strings.Count(got, "-a") != 600 || strings.Count(got, "+c") != 600 || !strings.HasSuffix(got, " b|") {
				t.Errorf("a large comparison: %.100s", got)
			}
			continue
		}
		if got != c.want {
			t.Errorf("%q to %q: %s, want %s", c.before, c.after, got, c.want)
		}
	}
}

// Feature V11: a change of what is masked is a change, and the mask stays.
func TestCompare_masked(t *testing.T) {
	if got := drawn(Compare(Text{"a\nsecret1", "a\n[x]"}, Text{"a\nsecret2", "a\n[x]"})); got != " a|-[x]|+[x]|" {
		t.Error(got)
	}
	if got := drawn(Compare(Text{"a\nsecret\n1", "a\n[x]"}, Text{"a\nsecret\n2", "a\n[x]"})); got != "" {
		t.Error(got)
	}
}
