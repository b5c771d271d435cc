package screen

import (
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
