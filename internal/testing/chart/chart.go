// Package chart draws what the examples show while they run: bars and histories, in place on a terminal, and plain
// lines elsewhere. It shows counts, and nothing that a message brings along.
package chart

import (
	"fmt"
	"os"
	"strings"
)

// Screen returns where people look, and whether it is a terminal. If standard output is no terminal, it is for the
// result alone.
func Screen() (out *os.File, terminal bool) {
	info, err := os.Stdout.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" {
		return os.Stdout, true
	}
	return os.Stderr, false
}

// Picture is drawn over itself on a terminal.
type Picture struct {
	Out   *os.File
	drawn int // lines that the next ones are drawn over
}

// Draw writes lines over those of the last Draw.
func (p *Picture) Draw(lines []string) {
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r" + line + "\x1b[K\n")
	}
	p.drawn = len(lines)
	_, _ = p.Out.WriteString(b.String())
}

const barSize = 40

// Bar returns a bar of 40 cells if n is full or more.
func Bar(n, full float64) string { return strings.Repeat("█", Cells(n, full, barSize)) }

// Cells returns how many of size cells stand for n, at least one for anything.
func Cells(n, full float64, size int) int {
	if n <= 0 {
		return 0
	}
	return max(1, min(size, int(n*float64(size)/full)))
}

// Columns is how many cells a History has at most.
const Columns = 60

// History returns a cell for each of the last rates.
func History(rates []float64, full float64) string {
	levels := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, rate := range rates[max(0, len(rates)-Columns):] {
		b.WriteRune(levels[Cells(rate, full, len(levels)-1)])
	}
	return b.String()
}
