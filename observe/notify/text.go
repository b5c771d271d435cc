package notify

import (
	"strings"
	"unicode"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

const (
	maxName        = 200  // characters
	maxDescription = 1000 // characters
	maxMasked      = 64 << 10
)

// line makes text that people can read in one line of any terminal or chat, of at most n characters: without control
// characters, marks of direction and what is invisible.
func line(text string, n int) string {
	text = boundedtext.Text(text, maxMasked)
	var b strings.Builder
	count, space := 0, true // no space at the begin
	for _, r := range text {
		switch {
		case unicode.IsSpace(r) || r == '\u0085':
			if space {
				continue
			}
			r = ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) ||
			unicode.Is(unicode.Variation_Selector, r):
			r = unicode.ReplacementChar
		}
		space = r == ' '
		if count++; count > n {
			b.WriteRune('…')
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimRight(b.String(), " ")
}
