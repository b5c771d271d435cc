package few

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns value as UTF-8 without control characters and without marks of direction, which turn what stands around
// the value, and at most so many characters of it. It allocates only if it changes value.
func Text(value string, most int) string {
	for i := range len(value) {
		if c := value[i]; i >= most || c < ' ' || c >= utf8.RuneSelf || c == 0x7f {
			return rewritten(value, most)
		}
	}
	return value
}

func rewritten(value string, most int) string {
	n := 0
	var b strings.Builder
	for _, r := range value {
		if n++; n > most {
			break
		}
		if unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return b.String()
}
