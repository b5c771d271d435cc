package screen

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

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
