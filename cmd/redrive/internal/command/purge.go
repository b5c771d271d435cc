package command

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// purgeReport is what purge did.
type purgeReport struct {
	Chosen int  `json:"chosen"`
	Purged int  `json:"purged"`
	Left   int  `json:"left"`
	DryRun bool `json:"dry_run,omitempty"`
}

func (a *app) purge() *cobra.Command {
	var chosen choice
	var olderThan, reason string
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete letters that are done with",
		Long: `purge deletes letters with their metadata and payloads, for good, in small transactions beside other traffic. The record of what was
done with them stays. --status says which: redriven, succeeded, failed_again and discarded letters are done with. Letters that
wait are deleted only if --status waiting asks for it. Config.Retention does so again and again.`,
		Example: `  redrive purge --status succeeded --status discarded --older-than 30d --reason "retention"
  redrive purge --status discarded --cause 9f3a12bc --older-than 0s --reason "personal data" --yes`,
		Args: arguments(0, 0, "none: flags choose the letters"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			switch {
			case reason == "" && !dryRun:
				return errNoReason
			case !chosen.has("status"):
				return wrong("--status is empty: name the letters to delete, such as succeeded")
			case olderThan == "":
				return wrong("--older-than is empty: give an age such as 30d; 0s is every age")
			}
			if chosen.has("until") {
				return wrong("--until and --older-than are both given: give one")
			}
			if _, err := moment("older-than", olderThan); err != nil {
				return err
			}
			store, err := a.store(ctx)
			if err != nil {
				return err
			}
			d := a.here(store, nil)
			if err := chosen.notMeant(ctx, d, reason); err != nil {
				return err
			}
			chosen.until = olderThan
			s, err := a.freeze(ctx, d, &chosen)
			if err != nil {
				return err
			}
			if dryRun {
				return a.answer(purgeReport{Chosen: s.Number, DryRun: true}, "would delete %s", several(s.Number, "letter"))
			}
			if err := a.confirm(yes, "delete %s of %s for good?", several(s.Number, "letter"), a.owner()); err != nil {
				return err
			}
			report := purgeReport{Chosen: s.Number}
			report.Purged, err = store.Purge(ctx, s.Filter, letters.Act{By: a.settings.by, Reason: reason})
			report.Left = max(0, s.Number-report.Purged)
			return errors.Join(err, a.answer(report, "deleted %s", several(report.Purged, "letter")))
		},
	}
	cmd.Flags().StringVar(&olderThan, "older-than", "", "failed at least so long ago: 30d, 12h; 0s is every age (required)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say how many letters would be deleted, and delete nothing")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record (required)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	chosen.flags(cmd, a.process.In, true)
	return cmd
}
