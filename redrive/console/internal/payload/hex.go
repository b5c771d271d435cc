package payload

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Line is 16 bytes as hex.
type Line struct {
	Offset, Bytes, Text string
}

const perLine = 16

func lines(p []byte) (all []Line) {
	for at := 0; at < len(p); at += perLine {
		row := p[at:min(len(p), at+perLine)]
		text := strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '.'
			}
			return r
		}, latin(row))
		all = append(all, Line{fmt.Sprintf("%08x", at), spaced(row), text})
	}
	return all
}

// latin is each byte as the character of that number.
func latin(p []byte) string {
	runes := make([]rune, len(p))
	for i, b := range p {
		runes[i] = rune(b)
	}
	return string(runes)
}

// spaced is bytes as hex, with a space after each and two after eight.
func spaced(p []byte) string {
	var b strings.Builder
	for i := range p {
		switch {
		case i == perLine/2:
			b.WriteString("  ")
		case i > 0:
			b.WriteString(" ")
		}
		b.WriteString(hex.EncodeToString(p[i : i+1]))
	}
	return b.String()
}
