package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// discardReport is what discard did.
type discardReport struct {
	Chosen    int `json:"chosen"`
	Discarded int `json:"discarded"`
	Left      int `json:"left"`
}

func (a *app) discard() *cobra.Command {
	var chosen choice
	var reason string
	var yes, all bool
	cmd := &cobra.Command{
		Use:   "discard",
		Short: "Give up letters that are of no use",
		Long: `discard marks the chosen letters that wait as discarded: no redrive takes them any more. They stay in the table, with your
name and reason, until purge removes them. What arrives after the start is not touched, and neither are letters that another
program works on at the moment.`,
		Example: `  redrive discard --cause 9f3a12bc --reason "test tenant, agreed with ann"
  redrive discard --id 7f0c2b1e --reason "sent by hand" --yes`,
		Args: arguments(0, 0, "none: flags choose the letters"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if reason == "" {
				return wrong("--reason is empty: say why, for those who read the record later")
			}
			if chosen.empty() && !all {
				return wrong("no flag chooses letters: add --cause, --id or another one, or --all for every letter that waits")
			}
			store, err := a.store(ctx)
			if err != nil {
				return err
			}
			f, n, err := a.freeze(ctx, store, &chosen)
			if err != nil {
				return err
			}
			if !yes {
				if err := a.screen.Confirm("discard %s of %s?", several(n, "letter"), a.owner()); err != nil {
					return err
				}
			}
			report := discardReport{Chosen: n}
			report.Discarded, err = store.MarkAll(ctx, f, letters.StatusDiscarded, letters.Act{By: a.settings.by, Reason: reason})
			report.Left = max(0, n-report.Discarded)
			if a.json {
				err = errors.Join(err, a.screen.JSON(report))
			} else {
				a.screen.Line("discarded %s", several(report.Discarded, "letter"))
			}
			if err == nil && report.Left > 0 {
				err = partly("%s not discarded: another program works on them, or they were redriven meanwhile", several(report.Left, "letter"))
			}
			return err
		},
	}
	chosen.flags(cmd, false)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record (required)")
	cmd.Flags().BoolVar(&all, "all", false, "every letter that waits")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// freeze returns the Filter of the flags, bounded by the letters that are there now, and how many it chooses.
func (a *app) freeze(ctx context.Context, store *letters.Store, chosen *choice) (f letters.Filter, n int, err error) {
	if f, err = chosen.filter(ctx, store); err != nil {
		return f, 0, err
	}
	if f.MaxSeq, err = store.LastSeq(ctx); err != nil {
		return f, 0, err
	}
	if f.MaxSeq > 0 {
		n, err = store.Count(ctx, f)
	}
	if err == nil && n == 0 {
		err = none("no letter is chosen: redrive list takes the same flags")
	}
	return f, n, err
}

// owner names whose letters they are.
func (a *app) owner() string {
	if a.settings.service == "" {
		return "this database"
	}
	return a.settings.service
}
