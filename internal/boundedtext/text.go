// Package boundedtext makes text of values that cannot be trusted: error messages of any length or encoding, panic
// values, names taken from messages. Nothing here panics, whatever the value does when it is asked for its text.
package boundedtext

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Text returns s as valid UTF-8 without NUL, at most limit bytes long. Of a longer text the head is kept and the cut
// marked with the size of the whole; a limit too small for the mark keeps the head alone.
func Text(s string, limit int) string {
	if limit <= 0 {
		return ""
	}
	if len(s) <= limit {
		if clean := sanitize(s); len(clean) <= limit {
			return clean
		}
	}
	mark := "…[cut, " + strconv.Itoa(len(s)) + " bytes in all]"
	if len(mark) > limit {
		mark = ""
	}
	// Each invalid byte grows to three when it is replaced, so the head is cut, cleaned and cut again.
	head := sanitize(headOf(s, limit-len(mark)))
	return headOf(head, limit-len(mark)) + mark
}

// Error returns the text of err within limit. An error whose Error method panics is named by its type instead.
func Error(err error, limit int) string {
	if err == nil {
		return ""
	}
	return contained(err, "Error", limit, err.Error)
}

// Value returns the text of any value, as fmt writes it with %+v, within limit. With the names of its fields, a secret
// in a struct can be told by its name. One that panics when it is asked for its text is named by its type instead.
func Value(v any, limit int) string {
	if err, ok := v.(error); ok {
		return Error(err, limit)
	}
	return contained(v, "String", limit, func() string { return fmt.Sprintf("%+v", v) })
}

func contained(v any, method string, limit int, text func() string) (s string) {
	defer func() {
		if recover() != nil {
			s = Text(fmt.Sprintf("%T (its %s method panicked)", v, method), limit)
		}
	}()
	return Text(text(), limit)
}

// headOf cuts s to at most limit bytes without splitting a rune. What is not a rune is split: in text of another
// encoding there may be none for megabytes.
func headOf(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for start := limit; start >= 0 && start > limit-utf8.UTFMax; start-- {
		if utf8.RuneStart(s[start]) {
			return s[:start]
		}
	}
	return s[:limit]
}

func sanitize(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return s
}

// maxCount bounds every count that is read from metadata. A larger one was not written by us.
const maxCount = 1_000_000

// Count reads a count from metadata. What cannot be one reads as 0.
func Count(s string) int {
	if s == "" { // the usual case: an error would be allocated
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}

// Time reads a time in RFC 3339 from metadata. What cannot be one, or lies before 1970 or after 9999, where it could
// not be written again, reads as the zero time.
func Time(s string) time.Time {
	if s == "" || len(s) > len(time.RFC3339Nano) {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return Moment(t)
}

// Moment is a time that came from outside, in UTC: from a record, a property, or a hook. One that lies before 1970 or
// after 9999, as from a clock in the wrong unit, could not be written as text that Time reads: it is the zero time.
func Moment(t time.Time) time.Time {
	t = t.UTC() // first: an offset may carry it over either end
	if t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
