package command

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

func (a *app) unlease() *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "unlease SEQ...",
		Short: "Take letters away from a program that is gone",
		Long: `unlease breaks leases. A program that works on letters has a lease on them, which ends by itself: redrive list --leased names the
holders. Break a lease only if its holder is gone: what it has published is published, and the letter may come back twice.`,
		Example: `  redrive list --leased
  redrive unlease 1042 1043 --reason "worker-3 was scrapped"`,
		Args: arguments(1, campaigns.MaxSeqs, "SEQs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return errNoReason
			}
			var seqs []int64
			for _, arg := range args {
				seq, err := strconv.ParseInt(arg, 10, 64)
				if err != nil || seq < 1 {
					return wrong("SEQ is %q: it must be a number, as redrive list --leased prints it", arg)
				}
				seqs = append(seqs, seq)
			}
			d, err := a.desk(cmd.Context())
			if err != nil {
				return err
			}
			if !yes {
				if err := a.screen.Confirm("break the leases of %s of %s?", several(len(seqs), "letter"),
					a.owner()); err != nil {
					return err
				}
			}
			broken, err := d.BreakLeases(cmd.Context(), a.person(reason), seqs)
			if err != nil {
				return err
			}
			if a.json {
				return a.screen.JSON(operate.LeasesData{Broken: broken})
			}
			if len(broken) == 0 {
				return none("none of these letters has a lease")
			}
			a.screen.Line("broke the leases of %s", several(len(broken), "letter"))
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record (required)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
