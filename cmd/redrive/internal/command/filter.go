package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// choice are the flags that choose letters.
type choice struct {
	causes, topics, notTopics, deadLetterTopics, handlers, classes, reasons, types, ids, statuses, redriveIDs []string
	metadata                                                                                                  []string
	payload                                                                                                   string
	leased, noOrigin                                                                                          bool
	text, stack, since, until                                                                                 string
	after                                                                                                     int64
	seqs                                                                                                      []int64
}

func (c *choice) flags(cmd *cobra.Command, statuses bool) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&c.causes, "cause", nil, "cause, as redrive causes prints it; its first characters will do")
	f.StringSliceVar(&c.topics, "topic", nil, "origin topic")
	f.StringSliceVar(&c.notTopics, "not-topic", nil, "not this origin topic")
	f.StringSliceVar(&c.handlers, "handler", nil, "handler that failed")
	f.StringSliceVar(&c.classes, "class", nil, "permanent, invalid, transient, unknown")
	f.StringSliceVar(&c.reasons, "failure-reason", nil, "reason of the failure")
	f.StringSliceVar(&c.types, "type", nil, "chain of error types")
	f.StringVar(&c.text, "text", "", "text that the description contains")
	f.StringSliceVar(&c.ids, "id", nil, "message id")
	f.StringVar(&c.since, "since", "", "failed at or after this time: 2h, 3d, 2026-03-01, 2026-03-01T12:00:00Z")
	f.StringVar(&c.until, "until", "", "failed before this time")
	if statuses {
		f.StringSliceVar(&c.statuses, "status", nil, strings.Join(statusNames(), ", ")+" (default waiting)")
	}
	f.StringSliceVar(&c.deadLetterTopics, "dead-letter-topic", nil, "topic that the letter was placed in")
	f.BoolVar(&c.noOrigin, "no-origin", false, "only messages that do not say where they came from")
	f.StringVar(&c.stack, "stack", "", "hash of the stack")
	f.StringArrayVar(&c.metadata, "metadata", nil, "metadata key=value; read in every letter that the other flags choose")
	f.StringVar(&c.payload, "payload", "",
		"text that the payload contains; read in every letter that the other flags choose")
	f.BoolVar(&c.leased, "leased", false, "only letters that a program works on")
	f.StringSliceVar(&c.redriveIDs, "redrive-id", nil, "redrive that brought the letter back before")
	_ = cmd.RegisterFlagCompletionFunc("class",
		cobra.FixedCompletions([]string{"permanent", "invalid", "transient", "unknown"}, cobra.ShellCompDirectiveNoFileComp))
	if statuses {
		_ = cmd.RegisterFlagCompletionFunc("status",
			cobra.FixedCompletions(statusNames(), cobra.ShellCompDirectiveNoFileComp))
	}
}

// filter is the Filter of the flags. It asks the store for causes of which only a beginning was given.
func (c *choice) filter(ctx context.Context, store *letters.Store) (letters.Filter, error) {
	f := letters.Filter{
		Topics: c.topics, NotTopics: c.notTopics, DeadLetterTopics: c.deadLetterTopics, Handlers: c.handlers,
		Reasons: c.reasons, Types: c.types, IDs: c.ids, RedriveIDs: c.redriveIDs, Description: c.text, StackHash: c.stack,
		Payload: c.payload, Leased: c.leased, NoOrigin: c.noOrigin,
	}
	for _, name := range c.classes {
		class, ok := classify.ParseClass(name)
		if !ok {
			return f, wrong("--class is %q: use permanent, invalid, transient or unknown", name)
		}
		f.Classes = append(f.Classes, class)
	}
	if err := oneOf("--status", c.statuses, statusNames()); err != nil {
		return f, err
	}
	for _, name := range c.statuses {
		if name == "all" {
			f.Statuses = letters.Statuses()
			break
		}
		f.Statuses = append(f.Statuses, letters.Status(name))
	}
	for _, pair := range c.metadata {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return f, wrong("--metadata is %q: want key=value", pair)
		}
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[key] = value
	}
	var err error
	if f.Since, err = moment("--since", c.since); err != nil {
		return f, err
	}
	if f.Until, err = moment("--until", c.until); err != nil {
		return f, err
	}
	if err := f.Validate(); err != nil {
		return f, coded{err, exitWrong}
	}
	f.Causes, err = wholeCauses(ctx, store, c.causes)
	return f, err
}

// empty reports whether no flag chooses anything.
func (c *choice) empty() bool {
	return len(c.causes)+len(c.topics)+len(c.notTopics)+len(c.deadLetterTopics)+len(c.handlers)+len(c.classes)+
		len(c.reasons)+len(c.types)+len(c.ids)+len(c.statuses)+len(c.redriveIDs)+len(c.seqs)+len(c.metadata) == 0 &&
		c.text+c.stack+c.since+c.until+c.payload == "" && !c.leased && !c.noOrigin
}

// wholeCauses returns the hashes that begin as given.
func wholeCauses(ctx context.Context, store *letters.Store, begins []string) ([]string, error) {
	if len(begins) == 0 {
		return nil, nil
	}
	groups, err := store.Groups(ctx, letters.Filter{Statuses: letters.Statuses(), Limit: letters.MaxLimit})
	if err != nil {
		return nil, err
	}
	var whole []string
	for _, begin := range begins {
		var found []string
		for _, g := range groups {
			if begin != "" && strings.HasPrefix(g.Cause, begin) {
				found = append(found, g.Cause)
			}
		}
		switch len(found) {
		case 0:
			return nil, none("--cause is %q, and no cause begins so: redrive causes --status all lists them", begin)
		case 1:
			whole = append(whole, found[0])
		default:
			return nil, wrong("--cause is %q, and %d causes begin so: give more of it", begin, len(found))
		}
	}
	return whole, nil
}

// moment reads a time, or a time ago.
func moment(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return time.Now().Add(-ago), nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if ago, err := time.ParseDuration(days + "h"); err == nil && ago >= 0 && ago < 100_000*time.Hour {
			return time.Now().Add(-24 * ago), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04",
		"2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, wrong("%s is %q: use a time ago such as 90m, 2h or 3d, or a time such as 2026-03-01T12:00:00Z; "+
		"without a zone it is UTC", flag, s)
}

// ofTopic is the Filter of the flags for letters that are in no store. Causes must be whole.
func (c *choice) ofTopic() (letters.Filter, error) {
	causes := c.causes
	only := *c
	only.causes = nil
	f, err := only.filter(context.Background(), nil)
	f.Causes = causes
	return f, err
}

// statusNames are the values of --status.
func statusNames() []string {
	return append([]string{"all"}, texts(letters.Statuses())...)
}
