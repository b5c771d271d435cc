package letters

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/metadatacodec"
	"github.com/watermill-spillway/spillway/poison"
)

const (
	maxFolded  = 512     // bytes of a description that count for its cause
	maxUnfold  = 4 << 10 // bytes of a description that are looked at
	foldedWord = '#'
)

// cause is what failed, where and how: what the letters of one Group have in common.
type cause struct {
	deadLetterTopic, topic, handler string
	class, reason, typ, stackHash   string
	description                     string
}

func causeOf(deadLetterTopic string, l *poison.Letter) cause {
	return cause{
		deadLetterTopic, l.Origin.Topic, l.Origin.Handler,
		l.Failure.Class.String(), l.Failure.Reason, l.Failure.Type, l.Failure.StackHash, l.Failure.Description,
	}
}

// hash is the same for the same cause, in every process and every release: it is kept in the table.
func (c cause) hash() string {
	var parts []byte
	for _, part := range []string{c.deadLetterTopic, c.topic, c.handler, c.class, c.reason, c.typ, c.stackHash, folded(c.description)} {
		parts = metadatacodec.Append(parts, part)
	}
	sum := sha256.Sum256(parts)
	return hex.EncodeToString(sum[:16])
}

// folded returns the description without what differs from message to message: each word with a digit (numbers, times,
// ids, UUIDs, hex) and each quoted text become one sign, and white space one space. At most maxFolded bytes of it count.
func folded(description string) string {
	rest := description[:min(len(description), maxUnfold)]
	var b strings.Builder
	previous := ' '
	for len(rest) > 0 && b.Len() < maxFolded {
		r, width := utf8.DecodeRuneInString(rest)
		if n := quoted(rest, previous); n > 0 {
			b.WriteString(`""`)
			previous, rest = '"', rest[n:]
			continue
		}
		if n, digits := word(rest); n > 0 {
			if digits {
				b.WriteRune(foldedWord)
			} else {
				b.WriteString(rest[:n])
			}
			previous, rest = 'a', rest[n:]
			continue
		}
		if unicode.IsSpace(r) {
			if previous != ' ' {
				b.WriteByte(' ')
			}
			r = ' '
		} else {
			b.WriteString(rest[:width])
		}
		previous, rest = r, rest[width:]
	}
	return strings.TrimSpace(b.String()[:min(b.Len(), maxFolded)])
}

// quoted returns the length of the quoted text that s begins with, or 0. A text that was cut may lack its end. An
// apostrophe within a word, or without another one, quotes nothing.
func quoted(s string, previous rune) int {
	mark := s[0]
	if mark != '"' && mark != '`' && mark != '\'' {
		return 0
	}
	if mark == '\'' && previous == 'a' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && mark == '"':
			i++
		case s[i] == mark && (mark != '\'' || !startsWord(s[i+1:])):
			return i + 1
		}
	}
	if mark == '\'' {
		return 0
	}
	return len(s)
}

func startsWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}

func isWord(r rune) bool {
	return r == '_' || r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// word returns the length of the word that s begins with, or 0, and whether the word has a digit. A hyphen belongs to a
// word within it, a point, colon or comma between two digits, and a sign before a digit.
func word(s string) (n int, digits bool) {
	if len(s) > 1 && (s[0] == '-' || s[0] == '+') && isDigit(s[1]) {
		n = 1
	}
	for n < len(s) {
		r, width := utf8.DecodeRuneInString(s[n:])
		switch {
		case isWord(r):
			digits = digits || unicode.IsDigit(r)
		case n > 0 && r == '-' && startsWord(s[n+1:]):
		case n > 0 && n+1 < len(s) && strings.ContainsRune(".:,", r) && isDigit(s[n-1]) && isDigit(s[n+1]):
		default:
			return n, digits
		}
		n += width
	}
	return n, digits
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// classOf is the class by its name, or ClassUnknown.
func classOf(name string) classify.Class {
	class, _ := classify.ParseClass(name)
	return class
}
