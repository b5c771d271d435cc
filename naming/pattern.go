package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/errs"
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
	allowed := func(c rune) bool { return r.allowed(c) && c != utf8.RuneError } // what is no UTF-8 reads as that
	if strings.IndexFunc(text, func(c rune) bool { return !allowed(c) }) < 0 {
		return text
	}
	return strings.Map(func(c rune) rune {
		if allowed(c) {
			return c
		}
		return r.substitute
	}, text)
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
	at := len(text) - markDigits
	return at >= 0 && strings.HasSuffix(text[:at], markStart) && strings.Trim(text[at:], "0123456789abcdef") == ""
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

// IsDeadLetter reports whether topic has the name of a topic for dead letters, parked and quarantined ones included.
func (s Scheme) IsDeadLetter(topic string) bool {
	topic = s.byPattern(topic)
	return matches(s.deadLetter(), topic) || matches(s.invalid(), topic) || matches(s.parked(), topic) ||
		matches(s.quarantine(), topic)
}

// IsStage reports whether topic has the name of a topic where messages wait for a retry, or come back to.
func (s Scheme) IsStage(topic string) bool {
	topic = s.byPattern(topic)
	return matches(s.stage(), topic) || matches(s.reentry(), topic)
}

// byPattern is the name that Names replaces with topic.
func (s Scheme) byPattern(topic string) string {
	for name, given := range s.Names {
		if given == topic {
			return name
		}
	}
	return topic
}

// matches reports whether topic begins and ends as the names of pattern do. If nothing but a delay stands there, the
// text beside the delay counts, and at last the text between topic and handler.
func matches(pattern, topic string) bool {
	if strings.Contains(pattern, "{class}") {
		for kind := range errs.Discard {
			if matches(strings.ReplaceAll(pattern, "{class}", kind.String()), topic) {
				return true
			}
		}
		return false
	}
	first, last := strings.IndexByte(pattern, '{'), strings.LastIndexByte(pattern, '}')
	if first < 0 || last < first {
		return topic == pattern
	}
	head, tail := pattern[:first], pattern[last+1:]
	if head == "" && tail == "" {
		return matchesAll(ends(parse(pattern)), topic)
	}
	return len(topic) >= len(head)+len(tail) && strings.HasPrefix(topic, head) && strings.HasSuffix(topic, tail)
}

// ends leaves out what stands between topic and handler, if there is text elsewhere.
func ends(parts []part) []part {
	isName := func(p part) bool { return p.holds && p.text != "delay" }
	first, last := slices.IndexFunc(parts, isName), len(parts)-1
	for last >= 0 && !isName(parts[last]) {
		last--
	}
	if first < 0 || first == 0 && last == len(parts)-1 {
		return parts
	}
	return slices.Concat(parts[:first+1], parts[last+1:])
}

// matchesAll reports whether topic has every text of a pattern, in its order.
func matchesAll(parts []part, topic string) bool {
	for i, p := range parts {
		if p.holds {
			continue
		}
		at := strings.Index(topic, p.text)
		if i == len(parts)-1 && strings.HasSuffix(topic, p.text) {
			at = len(topic) - len(p.text)
		}
		if at < 0 || i == 0 && at > 0 || i == len(parts)-1 && at+len(p.text) < len(topic) {
			return false
		}
		topic = topic[at+len(p.text):]
	}
	return topic == "" || len(parts) > 0 && parts[len(parts)-1].holds
}
