package screen

import (
	"fmt"
	"strings"
)

// Progress shows how far something is: in place on a terminal, and as a line of its own elsewhere, if it says something
// new.
type Progress struct {
	screen *Screen
	last   string
}

// Progress returns a Progress on the screen.
func (s *Screen) Progress() *Progress { return &Progress{screen: s} }

// Show shows a share, 0 to 1, and what there is to say. A negative share is not known.
func (p *Progress) Show(share float64, format string, args ...any) {
	text := Text(fmt.Sprintf(format, args...))
	if !p.screen.Terminal() {
		if text != p.last {
			fmt.Fprintln(p.screen.Out, text)
		}
		p.last = text
		return
	}
	columns := p.screen.columns() - 1 // a full line would wrap
	bar := ""
	if share >= 0 && columns >= 60 {
		length := min(30, columns-50)
		done := int(share * float64(length))
		bar = p.screen.styled(Green, strings.Repeat("█", done)) +
			p.screen.styled(Dim, strings.Repeat("░", length-done)) +
			"  "
		columns -= length + 2
	}
	p.last = text
	fmt.Fprint(p.screen.Out, "\r\x1b[K"+bar+cut(text, columns))
}

// End leaves the last state on the screen.
func (p *Progress) End() {
	if p.screen.Terminal() && p.last != "" {
		fmt.Fprintln(p.screen.Out)
	}
}
