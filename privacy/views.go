package privacy

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// view is a text as it reads when an encoding is undone, with the place of each of its bytes in the text. What is found
// in the view is masked in the text.
type view struct {
	text []byte
	at   []int32 // one more than text has bytes
}

// span returns where a span of the view is in the text.
func (v *view) span(s span) (int, int) { return int(v.at[s.start]), int(v.at[s.end]) }

// viewsOf returns text without the encoding of URLs, without that of queries and forms, in which a blank is a plus, and
// without the escapes of JSON and of Go's strings: those of them that text has.
func viewsOf(text string) (all []*view) {
	percent, plus := strings.Contains(text, "%"), strings.Contains(text, "+")
	if v := undone(text, percent, fromPercent); v != nil {
		all = append(all, v)
	}
	if v := undone(text, percent && plus, fromForm); v != nil {
		all = append(all, v)
	}
	if v := undone(text, strings.Contains(text, `\`), fromEscape); v != nil {
		all = append(all, v)
	}
	return all
}

// undone returns the view in which undo has read all of text, from left to right, or nil if it has found nothing.
func undone(text string, has bool, undo func(rest string) (clear string, size int)) *view {
	if !has {
		return nil
	}
	v := &view{make([]byte, 0, len(text)), make([]int32, 0, len(text)+1)}
	for i := 0; i < len(text); {
		clear, size := undo(text[i:])
		for range len(clear) {
			v.at = append(v.at, int32(i))
		}
		v.text = append(v.text, clear...)
		i += size
	}
	if len(v.text) == len(text) {
		return nil
	}
	v.at = append(v.at, int32(len(text)))
	return v
}

func fromPercent(rest string) (clear string, size int) {
	if rest[0] == '%' && len(rest) > 2 && isHex(rest[1]) && isHex(rest[2]) {
		b, _ := strconv.ParseUint(rest[1:3], 16, 8)
		return string([]byte{byte(b)}), 3
	}
	return rest[:1], 1
}

func fromForm(rest string) (clear string, size int) {
	if rest[0] == '+' {
		return " ", 1
	}
	return fromPercent(rest)
}

func fromEscape(rest string) (clear string, size int) {
	if rest[0] != '\\' || len(rest) == 1 {
		return rest[:1], 1
	}
	r, wide, tail, err := strconv.UnquoteChar(rest, '"')
	switch {
	case err != nil: // of JSON alone
		return rest[1:2], 2
	case wide:
		return string(r), len(rest) - len(tail)
	}
	return string([]byte{byte(r)}), len(rest) - len(tail)
}

// leastBase64 is the length from which a word is tried as base64.
const leastBase64 = 16

// findBase64 finds words that are base64 of a text in which find finds something. Such a word is masked as a whole.
func findBase64(text string, found *spans, find func(string) bool) {
	for i := 0; i < len(text); {
		start := i
		for i < len(text) && (isToken(text[i]) || text[i] == '+' || text[i] == '/') {
			i++
		}
		end := i
		for i < len(text) && text[i] == '=' && i < end+2 {
			i++
		}
		if i == start {
			i++
			continue
		}
		if end-start >= leastBase64 {
			if clear, ok := fromBase64(text[start:end]); ok && find(clear) {
				found.add(start, i)
			}
		}
	}
}

func fromBase64(word string) (string, bool) {
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(word, "-_") {
		encoding = base64.RawURLEncoding
	}
	// The head shows whether it is text, before all of it is decoded. A word that was cut has at most one character too
	// many.
	var head [leastBase64 / 4 * 3]byte
	if _, err := encoding.Decode(head[:], []byte(word[:leastBase64])); err != nil || !isText(head[:]) {
		return "", false
	}
	if len(word)%4 == 1 {
		word = word[:len(word)-1]
	}
	clear, err := encoding.DecodeString(word)
	return string(clear), err == nil
}

func isText(bytes []byte) bool {
	for _, b := range bytes {
		if b < ' ' && b != '\n' && b != '\r' && b != '\t' || b == 0x7f {
			return false
		}
	}
	for len(bytes) > 0 { // the last rune may be cut
		r, size := utf8.DecodeRune(bytes)
		if r == utf8.RuneError && size == 1 && len(bytes) >= utf8.UTFMax {
			return false
		}
		bytes = bytes[size:]
	}
	return true
}
