package command

import (
	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
)

// mostCauses is how many causes one list has.
const mostCauses = 100_000

// shortCause is how much of a cause people see: enough to choose it.
const shortCause = 8

func (a *app) causes() *cobra.Command {
	var chosen choice
	var limit int
	cmd := &cobra.Command{
		Use:   "causes",
		Short: "List what failed, the most frequent causes first",
		Long: `causes lists why letters wait: how many failed in the same handler, for the same reason, with the same text, its numbers
and ids apart. LAST MIN is how many came in the last full minute. EXAMPLE is the SEQ of the letter that came last: redrive show prints it. Times are UTC.`,
		Example: `  redrive causes
  redrive causes --since 1h
  redrive causes --topic orders --status discarded
  redrive list --cause 9f3a12bc`,
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := within("--limit", limit, 1, mostCauses); err != nil {
				return err
			}
			d, err := a.desk(cmd.Context())
			if err != nil {
				return err
			}
			f, err := chosen.filter(cmd.Context(), d)
			if err != nil {
				return err
			}
			var groups []operate.CauseData
			for len(groups) < limit {
				f.Limit = min(limit-len(groups), operate.MostCauses)
				page, err := d.Causes(cmd.Context(), f, len(groups))
				if err != nil {
					return err
				}
				if groups = append(groups, page...); len(page) < f.Limit {
					break
				}
			}
			t := &screen.Table{Columns: []screen.Column{
				{Name: "CAUSE", Style: screen.Blue}, {Name: "LETTERS", Right: true, Style: screen.Bold},
				{Name: "LAST MIN", Right: true, Drop: 6, Extra: true},
				{Name: "FIRST", Drop: 4, Extra: true, Style: screen.Dim},
				{Name: "LAST", Drop: 1, Style: screen.Dim}, {Name: "TOPIC", Min: 8}, {Name: "HANDLER", Min: 8, Drop: 2},
				{Name: "CLASS", Drop: 5, Extra: true}, {Name: "REASON", Min: 8},
				{Name: "EXAMPLE", Right: true, Drop: 3}, {Name: "DESCRIPTION", Min: 11},
			}}
			for _, g := range groups {
				if a.json {
					if err := a.screen.JSON(g); err != nil {
						return err
					}
					continue
				}
				cause := g.Cause
				if a.screen.Terminal() {
					cause = cause[:min(len(cause), shortCause)]
				}
				t.Row(cause, g.Count, g.LastMinute, a.stamped(g.FirstFailedAt), a.stamped(g.LastFailedAt), g.Topic, g.Handler,
					g.Class, g.Reason, g.Example, g.Description)
			}
			if len(groups) == 0 {
				a.screen.Note("no letter is waiting or chosen: --status redriven --status succeeded --status failed_again shows what was redriven, " +
					"--status discarded what was given up")
				return nil
			}
			if !a.json {
				a.screen.Table(t)
			}
			switch {
			case len(groups) < limit:
			case limit == mostCauses:
				a.screen.Note("there may be more causes, with fewer letters: choose by --topic, --handler or --since")
			default:
				a.screen.Note("there may be more causes, with fewer letters: --limit %d shows more", min(10*limit, mostCauses))
			}
			return nil
		},
	}
	chosen.flags(cmd, a.process.In, true)
	cmd.Flags().IntVar(&limit, "limit", 100, "the largest number of causes")
	return cmd
}
