package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// part is a piece of a pattern: text, or the name of a placeholder.
type part struct {
	text  string
	holds bool // a placeholder
}

var placeholders = []string{"topic", "handler", "class", "delay"}

// parse cuts a pattern into parts. Braces that hold no placeholder are text.
func parse(pattern string) (parts []part) {
	parts = make([]part, 0, 8)
	text := 0
	for at := 0; at < len(pattern); {
		name := placeholderAt(pattern[at:])
		if name == "" {
			at++
			continue
		}
		if at > text {
			parts = append(parts, part{text: pattern[text:at]})
		}
		parts = append(parts, part{text: name, holds: true})
		at += len(name) + 2
		text = at
	}
	if text < len(pattern) {
		parts = append(parts, part{text: pattern[text:]})
	}
	return parts
}

func placeholderAt(pattern string) string {
	if pattern[0] != '{' {
		return ""
	}
	for _, name := range placeholders {
		if strings.HasPrefix(pattern[1:], name) && strings.HasPrefix(pattern[1+len(name):], "}") {
			return name
		}
	}
	return ""
}

// name is the name that pattern gives to source, or the one that Names gives.
func (s Scheme) name(pattern string, source Source) string {
	parts, r := parse(pattern), s.rules()
	values := [2]string{}
	last, fixed := -1, 0
	for _, p := range parts {
		switch {
		case !p.holds:
			fixed += len(p.text)
		case p.text == "topic":
			last, values[0] = 0, source.Topic
		case p.text == "handler":
			last, values[1] = 1, source.Handler
		default:
			fixed += len(p.value(source))
		}
	}
	if last >= 0 {
		s.fit(&values, last, fixed, ambiguous(parts, source.Handler, r))
	}
	var b strings.Builder
	for _, p := range parts {
		switch {
		case !p.holds:
			b.WriteString(p.text)
		case p.text == "topic":
			b.WriteString(values[0])
		case p.text == "handler":
			b.WriteString(values[1])
		default:
			b.WriteString(p.value(source))
		}
	}
	name := b.String()
	if given, ok := s.Names[name]; ok {
		return given
	}
	return name
}

// value is what stands for a class or a delay.
func (p part) value(source Source) string {
	if p.text == "class" {
		return source.Class.String()
	}
	return written(source.Delay)
}

// fit makes topic and handler legal and short enough. If that changes one, or if the name is ambiguous, a hash of both
// is put behind the last.
func (s Scheme) fit(values *[2]string, last, fixed int, ambiguous bool) {
	r := s.rules()
	legal := [2]string{r.legal(values[0]), r.legal(values[1])}
	if !ambiguous && legal == *values && fixed+len(legal[0])+len(legal[1]) <= s.max() && !isMarked(legal[last]) {
		return
	}
	mark := markOf(values)
	room := max(0, s.max()-fixed-len(mark))
	half := room / 2
	topic := min(len(legal[0]), max(half, room-len(legal[1])))
	legal[0] = cut(legal[0], topic)
	legal[1] = cut(legal[1], room-len(legal[0]))
	legal[last] += mark
	*values = legal
}

// legal replaces each character that is not allowed.
func (r *rules) legal(text string) string {
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		if !r.allowedAt(c, n) {
			return r.replaced(text)
		}
		i += n
	}
	return text
}

func (r *rules) allowedAt(c rune, size int) bool {
	return r.allowed(c) && (c != utf8.RuneError || size > 1)
}

func (r *rules) replaced(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		if r.allowedAt(c, n) {
			b.WriteString(text[i : i+n])
		} else {
			b.WriteString(r.substitute)
		}
		i += n
	}
	return b.String()
}

// cut returns the head of text, of at most n bytes, without half a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

const (
	markStart  = "-h"
	markDigits = 12
)

// markOf distinguishes two names that were changed.
func markOf(values *[2]string) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(values[0])) + ":" + values[0] + values[1]))
	return markStart + hex.EncodeToString(sum[:markDigits/2])
}

// isMarked reports whether text ends as a changed name does. Such a name is changed itself, so that it differs from one
// that was.
func isMarked(text string) bool {
	at := len(text) - markDigits - len(markStart)
	if at < 0 || text[at:at+len(markStart)] != markStart {
		return false
	}
	for _, c := range []byte(text[at+len(markStart):]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// ambiguous reports whether a name could be split into another topic and handler. It cannot if the handler's name does
// not contain the text between them.
func ambiguous(parts []part, handler string, r *rules) bool {
	for i, p := range parts {
		if !p.holds || p.text != "topic" && p.text != "handler" || i+2 >= len(parts) || parts[i+1].holds ||
			!parts[i+2].holds {
			continue
		}
		between := r.fold(parts[i+1].text)
		switch next := parts[i+2].text; {
		case p.text == "topic" && next == "handler":
			return strings.LastIndex(between+r.fold(handler), between) != 0
		case p.text == "handler" && next == "topic":
			return strings.Index(r.fold(handler)+between, between) != len(handler)
		}
	}
	return false
}
