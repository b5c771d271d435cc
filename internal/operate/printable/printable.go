// Package printable writes what came with a message, its payload too, so that a terminal, a page or a spreadsheet shows
// it, and never obeys it.
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s as one line that is shown and never obeyed. What is not printable is escaped as Go escapes it:
// controls, bidirectional overrides, invisible characters, bytes that are no UTF-8. A backslash stays as it is: the
// result is for people.
func Text(s string) string { return safe(s, "") }

// Block is Text for several lines: it keeps line ends and tabs.
func Block(s string) string { return safe(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t") }

// maxMarks is how many combining marks stay on one character: a stack of them covers the lines around it.
const maxMarks = 2

func safe(s, keep string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	marks := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if unicode.Is(unicode.M, r) {
			marks++
		} else {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strings.ContainsRune(keep, r), harmless(r) && marks <= maxMarks:
			b.WriteRune(r)
		default:
			b.WriteString(escaped(r))
		}
		i += size
	}
	return b.String()
}

// harmless reports whether a terminal shows r as a character of its own, in its place. unicode.IsPrint leaves out
// controls, formats such as bidirectional overrides and zero-width joiners, private characters and all spaces but the
// plain one.
func harmless(r rune) bool { return unicode.IsPrint(r) }

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func escaped(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Cell returns s for a cell of a spreadsheet: a text that a spreadsheet would take for a formula gets an apostrophe in
// front. So does what stands behind a semicolon, which ends a cell in many countries.
func Cell(s string) string {
	s = Text(s)
	if formula(s) {
		s = "'" + s
	}
	if !strings.Contains(s, ";") {
		return s
	}
	parts := strings.Split(s, ";")
	for i, part := range parts[1:] {
		if formula(strings.TrimLeft(part, ` "`)) {
			parts[i+1] = "'" + part
		}
	}
	return strings.Join(parts, ";")
}

func formula(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	return strings.ContainsRune("=+-@|%＝＋－＠", first) && s != ""
}
