package command

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// move is a command that gives the chosen letters of one status another one.
type move struct {
	done    string         // what became of the letters, in JSON too
	from    letters.Status // whose letters it takes
	what    operate.Decision
	all     string // what --all chooses
	command cobra.Command
}

func (a *app) discard() *cobra.Command {
	return a.move(move{
		done: "discarded", from: letters.StatusWaiting, what: operate.Discard, all: "every letter that waits",
		command: cobra.Command{
			Use:   "discard [SEQ...]",
			Short: "Give up letters that are of no use",
			Long: `discard marks the chosen letters that wait as discarded: no redrive takes them any more. They stay in the table, with your
name and reason, until purge removes them; redrive restore lets them wait again. What arrives after the start is not touched, and
neither are letters that another program works on at the moment.`,
			Example: `  redrive discard --cause 9f3a12bc --reason "test tenant, agreed with ann"
  redrive discard 1042 1043 --reason "sent by hand" --yes`,
		},
	})
}

func (a *app) restore() *cobra.Command {
	return a.move(move{
		done: "restored", from: letters.StatusDiscarded, what: operate.Restore, all: "every discarded letter",
		command: cobra.Command{
			Use:   "restore [SEQ...]",
			Short: "Let discarded letters wait again",
			Long: `restore lets the chosen discarded letters wait again, with your name and reason on record. A redrive takes them then.
--redrive-id chooses what one discard of the console gave up.`,
			Example: `  redrive restore 1042 --reason "the wrong tenant"
  redrive restore --cause 9f3a12bc --reason "INC-7: they are needed after all"`,
		},
	})
}

func (a *app) move(m move) *cobra.Command {
	var chosen choice
	var reason string
	var yes, all bool
	cmd := &m.command
	cmd.Args = arguments(0, campaigns.MaxSeqs, "SEQs, or flags that choose letters")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		switch {
		case len(args) > 0 && (all || !chosen.empty()):
			return wrong("SEQs and flags that choose letters are both given: give one")
		case len(args) == 0 && !all && chosen.empty():
			return wrong("nothing chooses letters: name SEQs, add --cause or another flag, or --all for %s", m.all)
		}
		d, err := a.desk(ctx)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			if err := chosen.notMeant(ctx, d, reason); err != nil {
				return err
			}
		}
		chosen.statuses = []string{string(m.from)}
		s, err := a.frozen(ctx, d, &chosen, args)
		if err != nil {
			return err
		}
		if err := a.confirm(yes, "%s %s of %s?", cmd.Name(), several(s.Number, "letter"), a.owner()); err != nil {
			return err
		}
		moved, err := d.Decide(ctx, m.what, s, reason)
		left := max(0, s.Number-moved)
		report := map[string]int{"chosen": s.Number, m.done: moved, "left": left}
		err = errors.Join(err, a.answer(report, "%s %s", m.done, several(moved, "letter")))
		if err == nil && left > 0 {
			err = partly("%s not %s: a program works on them, or they were changed meanwhile, or are hidden: redrive list "+
				"--leased, and redrive doctor, say more", several(left, "letter"), m.done)
		}
		return err
	}
	chosen.flags(cmd, a.process.In, false)
	reasonFlag(cmd, &reason)
	cmd.Flags().BoolVar(&all, "all", false, m.all)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// frozen selects the letters that the arguments or the flags choose now.
func (a *app) frozen(ctx context.Context, d *desk, chosen *choice,
	args []string) (s operate.Selection, err error) {
	if len(args) == 0 {
		return a.freeze(ctx, d, chosen)
	}
	status := letters.Status(chosen.statuses[0])
	for _, arg := range args {
		l, _, err := find(ctx, d, arg)
		if err != nil {
			return s, err
		}
		if l.Status != string(status) {
			return s, none("SEQ %d is %s, and not %s: redrive show %d says what it went through", l.Seq, l.Status,
				status, l.Seq)
		}
		s.Seqs = append(s.Seqs, l.Seq)
	}
	slices.Sort(s.Seqs)
	s.Seqs = slices.Compact(s.Seqs)
	s.Filter.Statuses, s.Number = []letters.Status{status}, len(s.Seqs)
	return s, nil
}

// freeze selects the letters that the flags choose, and that are there now.
func (a *app) freeze(ctx context.Context, d *desk, chosen *choice) (s operate.Selection, err error) {
	if s.Filter, err = chosen.filter(ctx, d); err != nil {
		return s, err
	}
	if s, err = d.Freeze(ctx, s.Filter); err == nil && s.Number == 0 {
		err = none("no letter is chosen: redrive list takes the same flags")
	}
	return s, err
}

// owner names whose letters they are.
func (a *app) owner() string {
	if a.settings.service == "" {
		return "this database"
	}
	return a.settings.service
}
