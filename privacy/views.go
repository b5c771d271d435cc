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

func newView(size int) *view { return &view{make([]byte, 0, size), make([]int32, 0, size+1)} }

func (v *view) put(at int, bytes ...byte) {
	for _, b := range bytes {
		v.text = append(v.text, b)
		v.at = append(v.at, int32(at))
	}
}

// span returns where a span of the view is in the text.
func (v *view) span(s span) (int, int) { return int(v.at[s.start]), int(v.at[s.end]) }

// percentView undoes the percent-encoding of URLs. It returns nil if text has none.
func percentView(text string) *view { return percentViewOf(text, '+') }

// formView undoes the encoding of queries and forms, in which a blank is a plus. It returns nil if it is what
// percentView returns.
func formView(text string) *view {
	if strings.IndexByte(text, '+') < 0 {
		return nil
	}
	return percentViewOf(text, ' ')
}

func percentViewOf(text string, plus byte) *view {
	if strings.IndexByte(text, '%') < 0 {
		return nil
	}
	v := newView(len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) && hex(text[i+1]) >= 0 && hex(text[i+2]) >= 0 {
			v.put(i, byte(hex(text[i+1])<<4|hex(text[i+2])))
			i += 2
			continue
		}
		c := text[i]
		if c == '+' {
			c = plus
		}
		v.put(i, c)
	}
	if len(v.text) == len(text) {
		return nil
	}
	v.at = append(v.at, int32(len(text)))
	return v
}

// escapeView undoes the escapes of JSON and of Go's strings. It returns nil if text has none.
func escapeView(text string) *view {
	if strings.IndexByte(text, '\\') < 0 {
		return nil
	}
	v := newView(len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			v.put(i, text[i])
			continue
		}
		at := i
		i++
		switch c := text[i]; c {
		case 'n', 'r':
			v.put(at, '\n')
		case 't':
			v.put(at, '\t')
		case 'u', 'x', 'U':
			size := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			n, err := strconv.ParseUint(text[i+1:min(len(text), i+1+size)], 16, 32)
			if i+size >= len(text) || err != nil {
				v.put(at, c)
				continue
			}
			if i += size; c == 'x' {
				v.put(at, byte(n))
			} else {
				v.put(at, utf8.AppendRune(nil, rune(n))...)
			}
		default:
			v.put(at, c)
		}
	}
	v.at = append(v.at, int32(len(text)))
	return v
}

func hex(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
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
