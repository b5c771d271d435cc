package screen

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// columnsOf is how many columns of a terminal a text takes.
func columnsOf(s string) (n int) {
	for _, r := range s {
		n += columnsOfRune(r)
	}
	return n
}

func columnsOfRune(r rune) int {
	if r < 0x80 {
		return 1
	}
	if unicode.Is(unicode.M, r) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut returns s within n columns, with an ellipsis if something is missing.
func cut(s string, n int) string {
	if columnsOf(s) <= n {
		return s
	}
	var b strings.Builder
	left := n - 1
	for _, r := range s {
		if left -= columnsOfRune(r); left < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// pad fills s up to n columns, on its left side if right is set.
func pad(s string, n int, right bool) string {
	spaces := strings.Repeat(" ", max(0, n-columnsOf(s)))
	if right {
		return spaces + s
	}
	return s + spaces
}
