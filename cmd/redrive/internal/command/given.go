package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// given is the value of a flag that refuses to be given empty. A variable of a shell that is not set would otherwise
// choose more letters than it should, or leave out an edit, without a word.
type given struct{ pflag.Value }

var errEmpty = errors.New("a value is empty")

func (g given) Set(text string) error {
	if text == "" {
		return errEmpty
	}
	return g.Value.Set(text)
}

// String leaves out the brackets of an empty list, which help would print as a default.
func (g given) String() string { return strings.TrimPrefix(g.Value.String(), "[]") }

// refuseEmpty makes the flags of a command and of those below it refuse empty values. --reason and --older-than say so
// themselves. The flags of all commands, such as --service, may be empty.
func refuseEmpty(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		refuseEmpty(below)
		below.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			switch kind := f.Value.Type(); {
			case f.Name == "reason" || f.Name == "older-than":
			case kind == "string" || kind == "stringArray":
				f.Value = given{f.Value}
				f.DefValue = strings.TrimPrefix(f.DefValue, "[]") // which help would print behind the text of the flag
			}
		})
	}
}

// flagError says which flag has which wrong value.
func flagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	switch {
	case !errors.As(err, &invalid):
	case errors.Is(err, errEmpty):
		err = fmt.Errorf("--%s is empty: give a value, or leave the flag out; is a variable of the shell not set?",
			invalid.GetFlag().Name)
	case invalid.GetFlag().Name == fileOfIDs:
		err = fmt.Errorf("--%s is %q: %w", fileOfIDs, invalid.GetValue(), invalid.Unwrap())
	}
	return coded{err, exitWrong}
}

// fileOfIDs is the flag of a file with message ids.
const fileOfIDs = "id-file"

// idLines is the value of fileOfIDs. Each line of the file is given to the flag --id as it stands.
type idLines struct {
	set *pflag.FlagSet
	in  io.Reader
}

func idFile(set *pflag.FlagSet, in io.Reader) {
	set.Var(idLines{set, in}, fileOfIDs, "`file` of message ids, one a line, each taken as it stands; - is the standard input")
}

func (idLines) String() string { return "" }
func (idLines) Type() string   { return "string" }

func (l idLines) Set(path string) error {
	text, err := readFile(path, l.in)
	if err == nil {
		err = readable(text)
	}
	if err != nil {
		return err
	}
	some := false
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"); strings.TrimSpace(line) == "" {
			continue
		}
		if err := l.set.Set("id", line); err != nil {
			return err
		}
		some = true
	}
	if !some {
		return errors.New("it has no id")
	}
	return nil
}

// readFile reads a file, or the standard input.
func readFile(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(path)
}

// readable returns an error for text that is not plain UTF-8, which names what it is.
func readable(text []byte) error {
	for begin, name := range map[string]string{"\xef\xbb\xbf": "UTF-8 with a byte order mark", "\xff\xfe": "UTF-16",
		"\xfe\xff": "UTF-16"} {
		if bytes.HasPrefix(text, []byte(begin)) {
			return fmt.Errorf("the text is %s: save it as plain UTF-8", name)
		}
	}
	if first := text[:min(len(text), 2)]; len(first) == 2 && (first[0] == 0) != (first[1] == 0) {
		return errors.New("the text is UTF-16 without a byte order mark: save it as plain UTF-8")
	}
	if !utf8.Valid(text) {
		return errors.New("the text is not UTF-8: save it so")
	}
	return nil
}
