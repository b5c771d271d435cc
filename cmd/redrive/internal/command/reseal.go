package command

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// resealView is what reseal did.
type resealView struct {
	inside.Resealed
	Left int `json:"left"`
}

// keyView is a key and its letters.
type keyView struct {
	inside.KeyCount
	Current bool `json:"current,omitempty"`
}

type resealFlags struct {
	from        []string
	reason      string
	most        int
	pause       time.Duration
	dryRun, yes bool
}

func (a *app) reseal() *cobra.Command {
	var r resealFlags
	cmd := &cobra.Command{
		Use:   "reseal",
		Short: "Seal letters with the current key, and count letters by key",
		Long: `reseal seals letters with the first key of --keys: those of other keys, and those that are not sealed. It works in small
transactions beside other traffic, and each letter has an event. If it is killed, each letter has its old key or the new one: run it
again. It leaves out letters that a program works on, and those that arrive after the start. A letter that does not open stays as it
is (exit code 5).

--dry-run counts the letters of each key, and needs no keys. An old key may go if it has no letters here, and none in a topic.

Letters that are not sealed yet are sealed with all of their metadata: --clear names what stays readable, as the service does it.`,
		Example: `  redrive reseal --dry-run
  redrive reseal --keys letters.keys --clear tenant --reason "rotation of November"
  redrive reseal --keys letters.keys --from orders-2025-11 --max 1000 --pause 100ms --reason "rotation" --yes`,
		Args: arguments(0, 0, "none: flags choose the letters"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.resealAll(cmd.Context(), r) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&r.from, "from", nil, "id of a key: only letters that are sealed with it")
	f.IntVar(&r.most, "max", 0, "the largest number of letters; 0 takes all")
	f.DurationVar(&r.pause, "pause", 0, "the time between two transactions")
	a.clearFlag(f)
	f.BoolVar(&r.dryRun, "dry-run", false, "count the letters of each key, and change nothing")
	f.StringVar(&r.reason, "reason", "", "why, for the record (required)")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) resealAll(ctx context.Context, r resealFlags) error {
	switch {
	case r.most < 0 || r.pause < 0:
		return wrong("--max (%d) and --pause (%s) must not be negative", r.most, r.pause)
	case a.settings.keys == "" && !r.dryRun:
		return wrong("--keys is empty: name the file of keys, with the new key as its first line, or set SPILLWAY_KEYS; " +
			"redrive help sealing shows a file")
	case r.reason == "" && !r.dryRun:
		return errNoReason
	}
	store, err := a.store(ctx)
	if err != nil {
		return err
	}
	current := ""
	if a.sealer != nil {
		if current, err = a.sealer.Inside().CurrentID(ctx); err != nil {
			return err
		}
	}
	keys, err := store.Inside().SealKeys(ctx)
	if err != nil {
		return err
	}
	if r.dryRun {
		return a.keyTable(keys, current)
	}
	f, n, err := r.choose(ctx, store, keys, current)
	if err != nil {
		return err
	}
	if n == 0 {
		return none("no letter needs to be resealed: redrive reseal --dry-run counts the letters of each key")
	}
	if !r.yes {
		if err := a.screen.Confirm("seal %s of %s with key id %q?", several(n, "letter"), a.owner(),
			current); err != nil {
			return err
		}
	}
	report, err := store.Inside().Reseal(ctx, f, letters.Act{By: a.settings.by, Reason: r.reason},
		inside.ResealOptions{Pause: r.pause})
	view := resealView{report, max(0, n-report.Resealed-report.Closed)}
	if a.json {
		err = errors.Join(err, a.screen.JSON(view))
	} else {
		a.screen.Line("sealed %s with key id %q", several(report.Resealed, "letter"), current)
		for _, why := range report.Why {
			a.screen.Line("  %s", why)
		}
	}
	switch {
	case err != nil:
		return err
	case report.Closed > 0:
		return partly("%s not opened, and left as they are: add their keys to %q, or compare the letters with a backup",
			several(report.Closed, "letter"), a.settings.keys)
	case view.Left > 0:
		f.Leased = true
		if n, err := store.Count(ctx, f); err != nil || n == 0 {
			return errors.Join(err, partly("%s left, which were changed meanwhile, or are hidden: redrive doctor says what is "+
				"seen here", several(view.Left, "letter")))
		}
		return partly("%s left, because a program works on them: run reseal again", several(view.Left, "letter"))
	}
	return nil
}

// choose returns the Filter of the letters that another key has, bounded by what is there now, and how many there are.
func (r resealFlags) choose(ctx context.Context, store *letters.Store, keys []inside.KeyCount,
	current string) (f letters.Filter, n int, err error) {
	for _, k := range keys {
		if k.Key != current && (len(r.from) == 0 || slices.Contains(r.from, k.Key)) &&
			len(f.SealKeys) < letters.MaxListed {
			f.SealKeys = append(f.SealKeys, k.Key)
		}
	}
	if len(f.SealKeys) == 0 {
		return f, 0, nil
	}
	for _, status := range letters.Statuses() {
		if status != letters.StatusErased { // nothing is left to seal
			f.Statuses = append(f.Statuses, status)
		}
	}
	if f.MaxSeq, err = store.Inside().LastSeq(ctx); err != nil || f.MaxSeq == 0 {
		return f, 0, err
	}
	if r.most == 0 {
		n, err = store.Count(ctx, f)
		return f, n, err
	}
	for head, err := range paged(ctx, f, store.Heads, func(h letters.Head) int64 { return h.Seq }) {
		if err != nil {
			return f, 0, err
		}
		if n++; n == r.most {
			f.MaxSeq = head.Seq
			break
		}
	}
	return f, n, nil
}

// keyTable prints how many letters each key has.
func (a *app) keyTable(keys []inside.KeyCount, current string) error {
	t := &screen.Table{Columns: []screen.Column{{Name: "KEY", Style: screen.Blue}, {Name: "LETTERS", Right: true},
		{Name: ""}}}
	for _, k := range keys {
		is := k.Key != "" && k.Key == current
		if a.json {
			if err := a.screen.JSON(keyView{k, is}); err != nil {
				return err
			}
			continue
		}
		name, what := k.Key, "would be resealed"
		switch {
		case k.Key == "":
			name, what = "-", "not sealed"
		case is:
			what = "current"
		case current == "":
			what = ""
		}
		t.Row(name, k.Letters, what)
	}
	if len(keys) == 0 {
		return none("there is no letter")
	}
	if !a.json {
		a.screen.Table(t)
	}
	return nil
}
