package printable

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format is a way to show bytes.
type Format string

// The formats. Auto is JSON for JSON, Plain for text, and Hex for all other bytes.
const (
	Auto  Format = "auto"
	JSON  Format = "json"
	Plain Format = "text"
	Hex   Format = "hex"
)

// View is what is shown of a payload: JSON in lines, text, or lines of hex.
//
// The bytes come from strangers, and a person decides by what is shown. So nothing is shown as what it is not. JSON is
// indented, and its numbers, strings and escapes stay as they are; a key that is there twice is shown twice. Only what is
// UTF-8 without controls is taken for text by itself, and what is not printable is escaped. All other bytes are hex. The
// caller masks secrets before: half of a secret is not known as one.
type View struct {
	// Format is JSON, Plain or Hex. It is empty if there are no bytes.
	Format Format
	// Formats are those that the payload can be shown in.
	Formats []Format
	// Text is what is shown, in lines that are printable.
	Text string
	// Bytes is how many bytes of the payload are shown. Of JSON it is how many bytes of its lines.
	Bytes int
	// Cut reports whether the view does not show all.
	Cut bool
}

// Payload returns a view of at most so many bytes as JSON or text, or as hex; 0 is no limit. whole reports whether p is all of
// the payload. If the payload cannot be shown as want, it is shown as with Auto.
func Payload(p []byte, want Format, most, mostHex int, whole bool) View {
	if len(p) == 0 && whole {
		return View{}
	}
	v := View{Formats: []Format{Plain, Hex}}
	lines, isJSON := []byte(nil), false
	if whole && (most == 0 || len(p) <= 8*most) {
		lines, isJSON = Indent(p)
	}
	if isJSON {
		v.Formats = slices.Insert(v.Formats, 0, JSON)
	}
	switch {
	case isJSON && want != Plain && want != Hex:
		v.Format = JSON
	case want == Plain || want != Hex && isText(p, whole):
		v.Format, lines = Plain, p
	default:
		v.Format = Hex
		shown := p
		if mostHex > 0 {
			shown = p[:min(len(p), mostHex)]
		}
		v.Text, v.Bytes, v.Cut = hex.Dump(shown), len(shown), len(shown) < len(p) || !whole
		return v
	}
	shown := lines
	if most > 0 {
		shown = cut(lines, most)
	}
	v.Text, v.Bytes, v.Cut = Block(string(shown)), len(shown), len(shown) < len(lines) || !whole
	return v
}

// maxDepth is the depth of JSON that is indented. What is deeper would be mostly white space.
const maxDepth = 64

// Indent returns JSON in lines, or false for bytes that are none, or too deep.
func Indent(p []byte) (lines []byte, ok bool) {
	depth := 0
	for _, b := range p {
		switch b {
		case '{', '[':
			if depth++; depth > maxDepth {
				return nil, false
			}
		case '}', ']':
			depth--
		}
	}
	var to bytes.Buffer
	if !utf8.Valid(p) || json.Indent(&to, p, "", "  ") != nil {
		return nil, false
	}
	return to.Bytes(), true
}

// isText reports whether bytes are text: UTF-8, without controls other than those of lines.
func isText(p []byte, whole bool) bool {
	if !whole { // the last character may be cut
		p = cut(p, len(p)-1)
	}
	return utf8.Valid(p) && bytes.IndexFunc(p, func(r rune) bool {
		return unicode.IsControl(r) && !strings.ContainsRune("\n\r\t", r)
	}) < 0
}

// cut returns at most n bytes, and cuts no character.
func cut(p []byte, n int) []byte {
	if len(p) <= n {
		return p
	}
	for back := 0; back < utf8.UTFMax && n > 0 && !utf8.RuneStart(p[n]); back++ {
		n--
	}
	return p[:n]
}
