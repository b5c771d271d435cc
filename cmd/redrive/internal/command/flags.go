package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// choice are the flags that choose letters. They have the names of the fields of a filter.
type choice struct {
	set      *pflag.FlagSet
	statuses []string // instead of those of the flag
	until    string   // instead of that of the flag
	after    int64
	seqs     []int64
}

func (c *choice) flags(cmd *cobra.Command, in io.Reader, statuses bool) {
	f := cmd.Flags()
	f.SortFlags = false
	c.set = f
	list := func(name, help string) { f.StringArray(name, nil, help) }
	list("cause", "cause, as redrive causes prints it; its first characters will do")
	list("topic", "origin topic")
	list("not-topic", "not this origin topic")
	list("handler", "handler that failed")
	list("class", "permanent, invalid, transient, unknown")
	list("failure-reason", "reason of the failure")
	list("type", "chain of error types")
	f.String("text", "", "text that the description contains")
	list("id", "message id")
	idFile(f, in)
	f.String("since", "", "failed at or after this time: 2h, 3d, 2026-03-01, 2026-03-01T12:00:00Z")
	f.String("until", "", "failed before this time")
	if statuses {
		list("status", strings.Join(operate.StatusNames(), ", ")+" (default waiting)")
		_ = cmd.RegisterFlagCompletionFunc("status",
			cobra.FixedCompletions(operate.StatusNames(), cobra.ShellCompDirectiveNoFileComp))
	}
	list("dead-letter-topic", "topic that the letter was placed in")
	f.Bool("no-origin", false, "only messages that do not say where they came from")
	f.String("stack", "", "hash of the stack")
	f.StringArray("metadata", nil, "metadata key=value; read in every letter that the other flags choose")
	f.String("payload", "", "text that the payload contains, also as \\u in JSON; read in every letter that the other flags choose")
	f.Bool("leased", false, "only letters that a program works on")
	list("redrive-id", "redrive that brought the letter back before")
	_ = cmd.RegisterFlagCompletionFunc("class",
		cobra.FixedCompletions([]string{"permanent", "invalid", "transient", "unknown"},
			cobra.ShellCompDirectiveNoFileComp))
}

// values are the values of the flags that were given.
func (c *choice) values() url.Values {
	q := url.Values{}
	for _, field := range operate.FilterFields {
		flag := c.set.Lookup(field.Name)
		if flag == nil || !flag.Changed {
			continue
		}
		value := flag.Value
		if checked, ok := value.(given); ok {
			value = checked.Value
		}
		if list, ok := value.(pflag.SliceValue); ok {
			q[field.Name] = list.GetSlice()
		} else if text := value.String(); text != "false" || value.Type() != "bool" {
			q.Set(field.Name, text)
		}
	}
	if len(c.statuses) > 0 {
		q["status"] = c.statuses
	}
	if c.until != "" {
		q.Set("until", c.until)
	}
	return q
}

// filter is the Filter of the flags. It asks the desk for causes of which only a beginning was given.
func (c *choice) filter(ctx context.Context, d *desk) (f letters.Filter, err error) {
	if f, err = c.ofTopic(); err == nil {
		f.Causes, err = wholeCauses(ctx, d, f.Causes)
	}
	return f, err
}

// ofTopic is the Filter of the flags for letters that are in no store. Causes must be whole.
func (c *choice) ofTopic() (letters.Filter, error) {
	for _, topic := range c.values()["not-topic"] {
		if strings.ContainsAny(topic, "\r\n") { // it would leave out nothing
			return letters.Filter{}, wrong("--not-topic is %q, which no topic is: give the flag once for each topic", topic)
		}
	}
	f, err := operate.ParseFilter(c.values(), time.Now())
	return f, flagged(err)
}

// has reports whether a flag was given.
func (c *choice) has(name string) bool { return c.set.Changed(name) }

// empty reports whether no flag chooses anything.
func (c *choice) empty() bool { return len(c.values())+len(c.seqs) == 0 }

// notMeant returns an error if the words for the record are the reason of letters: --reason was taken for
// --failure-reason, and other letters would be acted on.
func (c *choice) notMeant(ctx context.Context, d *desk, reason string) error {
	if reason == "" || len(c.seqs) > 0 || c.has("failure-reason") {
		return nil
	}
	f := letters.Filter{Reasons: []string{reason}, Statuses: letters.Statuses(), Limit: 1}
	if heads, err := d.Heads(ctx, f); err != nil || len(heads) == 0 {
		return err
	}
	return wrong("--reason is why you act, for the record, and %q is a reason of letters: choose them by "+
		"--failure-reason, and say why in other words", reason)
}

// reasonFlag adds --reason, which the command needs.
func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the record (required)")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *reason == "" {
			return errNoReason
		}
		return run(cmd, args)
	}
}

// moment reads a time, or a time ago.
func moment(flag, text string) (time.Time, error) {
	at, err := operate.Moment(flag, text, time.Now())
	return at, flagged(err)
}

// flagged gives an error of a value the name of its flag.
func flagged(err error) error {
	var of *operate.Wrong
	switch {
	case !errors.As(err, &of):
		return err
	case of.Field == "":
		return coded{err, exitWrong}
	}
	return wrong("--%w", err)
}

// wholeCause is how long the hash of a cause is.
const wholeCause = 32

// wholeCauses returns the hashes that begin as given. A whole one is taken as it is.
func wholeCauses(ctx context.Context, d *desk, begins []string) (whole []string, err error) {
	for _, begin := range begins {
		if len(begin) == wholeCause {
			whole = append(whole, begin)
			continue
		}
		found, err := d.causes(ctx, url.Values{"begins": {begin}})
		switch {
		case err != nil:
			return nil, err
		case len(found) == 0:
			return nil, none("--cause is %q, and no cause begins so: redrive causes --status all lists them", begin)
		case len(found) > 1:
			return nil, wrong("--cause is %q, and %d causes begin so: give more of it", begin, len(found))
		}
		whole = append(whole, found[0].Cause)
	}
	return whole, nil
}

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
