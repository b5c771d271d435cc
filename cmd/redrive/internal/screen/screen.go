// Package screen is the one way out of the command redrive: whatever it prints goes through here.
//
// The values that a dead letter carries were chosen by strangers. A terminal obeys control characters, and a
// spreadsheet runs formulas. So no value reaches either of them raw:
//
//	Text     one line: control characters, escapes, bidirectional overrides and bytes that are no text become \x1b, \u202e, \xff
//	Block    the same for several lines; it keeps line ends and tabs
//	JSON     a line of JSON: the same characters as \u escapes, so that a program reads back what was there
//	CSV      a line of comma-separated values, where no cell begins as a formula does
//
// # Terminal and pipe
//
// On a terminal a Table has a header, and columns that fit the width: long ones are cut with an ellipsis, and the least
// important ones go first. In a pipe it is a line for each row, with tabs between the cells, without a header and
// uncut. With JSON set, commands print objects instead, one a line.
//
// Colour is for terminals only, and never carries a meaning that words do not. NO_COLOR and TERM=dumb turn it off.
package screen

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/watermill-spillway/spillway/privacy"
)

// Style is how a text looks on a terminal with colour.
type Style string

// The styles. They mark what the words say already.
const (
	Plain Style = ""
	Bold  Style = "1"
	Dim   Style = "2"
	Red   Style = "31"
	Green Style = "32"
	Amber Style = "33"
	Blue  Style = "36"
)

// Config configures a Screen.
type Config struct {
	In       io.Reader
	Out, Err io.Writer
	// JSON makes commands print objects for programs.
	JSON bool
	// Color is auto, always or never. Auto is colour on a terminal, unless NO_COLOR is set or TERM is dumb.
	Color string
	// Privacy masks secrets in whatever is printed, apart from Lines. Default: credentials are masked.
	Privacy *privacy.Redactor
	// Env looks up environment variables. Default: os.Getenv.
	Env func(string) string
}

// Screen prints to a terminal or a pipe. It is not safe for concurrent use.
type Screen struct {
	Config
	columns func() int // 0 if Out is no terminal
	paint   bool
	paintOn bool // of Err
}

// New returns a Screen, or an error that names a wrong Color.
func New(c Config) (*Screen, error) {
	if c.Env == nil {
		c.Env = os.Getenv
	}
	s := &Screen{Config: c, columns: func() int { return 0 }}
	if file, ok := c.Out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		s.columns = func() int {
			if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
				return n
			}
			return 80
		}
	}
	switch allowed := c.Env("NO_COLOR") == "" && c.Env("TERM") != "dumb"; c.Color {
	case "", "auto":
		s.paint, s.paintOn = allowed && s.Terminal(), allowed && isTerminal(c.Err)
	case "always":
		s.paint, s.paintOn = true, true
	case "never":
	default:
		return nil, fmt.Errorf("--color is %q: use auto, always or never", c.Color)
	}
	return s, nil
}

func isTerminal(w any) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Terminal reports whether a person reads along.
func (s *Screen) Terminal() bool { return s.columns() > 0 }

// Narrow reports whether a terminal has no room for what can be said shorter.
func (s *Screen) Narrow() bool { return s.Terminal() && s.columns() < 120 }

// Line prints one line, made safe as a whole.
func (s *Screen) Line(format string, args ...any) { s.Styled(Plain, format, args...) }

// Styled prints one line in a style.
func (s *Screen) Styled(style Style, format string, args ...any) {
	fmt.Fprintln(s.Out, s.styled(style, s.text(fmt.Sprintf(format, args...))))
}

// Blank prints an empty line on a terminal, and nothing in a pipe.
func (s *Screen) Blank() {
	if s.Terminal() {
		fmt.Fprintln(s.Out)
	}
}

// Lines prints several lines as they are, made safe. Mask them before: they may be longer than a text that Privacy
// keeps.
func (s *Screen) Lines(text string) { fmt.Fprintln(s.Out, strings.TrimRight(Block(text), "\n")) }

// Note prints a line for people on the error output, so that it is in no pipe.
func (s *Screen) Note(format string, args ...any) {
	fmt.Fprintln(s.Err, s.text(fmt.Sprintf(format, args...)))
}

// Fail prints an error, each line of it made safe.
func (s *Screen) Fail(err error) {
	lead := "redrive: "
	if s.paintOn {
		lead = "\x1b[" + string(Red) + "m" + lead + "\x1b[0m"
	}
	fmt.Fprintln(s.Err, lead+s.block(err.Error()))
}

// styled must get a text that is safe.
func (s *Screen) styled(style Style, safe string) string {
	if !s.paint || style == Plain || safe == "" {
		return safe
	}
	return "\x1b[" + string(style) + "m" + safe + "\x1b[0m"
}

// Safely makes whatever is written to w safe, line ends and tabs apart.
func Safely(w io.Writer) io.Writer { return safely{w} }

type safely struct{ w io.Writer }

func (s safely) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, Block(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Field prints a name and a value on a line.
func (s *Screen) Field(name, value string) {
	fmt.Fprintln(s.Out, s.styled(Dim, pad(Text(name), 18, false))+s.text(value))
}

// Head prints the heading of what follows.
func (s *Screen) Head(name string) {
	fmt.Fprintln(s.Out)
	fmt.Fprintln(s.Out, s.styled(Bold, s.text(name)))
}

// ErrDeclined is the error of Confirm if the answer is not yes.
var ErrDeclined = errors.New("nothing was done: the answer was not yes")

// ErrNotAsked is the error of Confirm if there is no person to ask.
var ErrNotAsked = errors.New("nothing was done: the input is no terminal, so that no one can be asked: add --yes")

// Confirm asks a question on the error output and returns nil if a person at the terminal answers y or yes.
func (s *Screen) Confirm(format string, args ...any) error {
	question := Text(fmt.Sprintf(format, args...))
	if !isTerminal(s.In) {
		fmt.Fprintln(s.Err, question)
		return ErrNotAsked
	}
	fmt.Fprint(s.Err, question+" [y/N] ")
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil { // such as Ctrl-D
		fmt.Fprintln(s.Err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return ErrDeclined
}

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
