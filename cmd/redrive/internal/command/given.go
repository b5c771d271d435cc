package command

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// given is the value of a flag that refuses to be given empty. A variable of a shell that is not set would otherwise
// choose more letters than it should, or leave out an edit, without a word.
type given struct {
	pflag.Value
	list bool // of values with commas between them
}

var errEmpty = errors.New("a value is empty")

func (g given) Set(text string) error {
	if text == "" {
		return errEmpty
	}
	if g.list {
		values, err := csv.NewReader(strings.NewReader(text)).Read()
		if err == nil && slices.Contains(values, "") {
			return errEmpty
		}
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
			case kind == "string" || kind == "stringArray" || kind == "stringSlice":
				f.Value = given{f.Value, kind == "stringSlice"}
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
	case errors.Is(err, errEmpty) && invalid.GetValue() == "":
		err = fmt.Errorf("--%s is empty: give a value, or leave the flag out; is a variable of the shell not set?",
			invalid.GetFlag().Name)
	case errors.Is(err, errEmpty):
		err = fmt.Errorf("--%s is %q, which has an empty value: leave out the comma; is a variable of the shell not set?",
			invalid.GetFlag().Name, invalid.GetValue())
	}
	return coded{err, exitWrong}
}
