package privacy

import (
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// One look at a text finds what a search for each prefix finds.
func TestTokensAsOneByOne(t *testing.T) {
	testkit.Require(t, len(prefixes) <= maxPrefixes, "%d prefixes, and a word has %d bits", len(prefixes), maxPrefixes)
	around := []string{"", "a", "0", "_", "-", ".", ":", "/", " ", "\n", "é", "@openssh.com", " realm=",
		strings.Repeat("AB2", 20), strings.Repeat("x", 24), strings.Repeat("0f", 16), " " + strings.Repeat("aB1", 8)}
	texts := func(yield func(string) bool) {
		for _, prefix := range prefixes {
			for _, before := range around {
				for _, behind := range around {
					for _, end := range around {
						if !yield(before + prefix + behind + prefix + end) {
							return
						}
					}
				}
			}
		}
	}
	for text := range texts {
		var got, want spans
		findTokens(text, &got)
		findWebTokens(text, &want)
		findPrivateKeys(text, &want)
		for n, prefix := range prefixes {
			for from := 0; ; {
				i := strings.Index(text[from:], prefix)
				if i < 0 {
					break
				}
				i += from
				from = i + len(prefix)
				if i > 0 && isWord(prefix[0]) && isWord(text[i-1]) {
					continue
				}
				if n < len(shapes) {
					from = shapes[n].find(text, i, &want)
				} else {
					from = findBehind(text, from, &want)
				}
			}
		}
		if a, b := got.merged(text), want.merged(text); !slices.Equal(a, b) {
			t.Fatalf("%q: %v, one by one %v", text, a, b)
		}
	}
}
