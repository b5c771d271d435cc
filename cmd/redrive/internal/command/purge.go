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
	var rules []string
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete letters that are done with",
		Long: `purge deletes letters with their metadata and payloads, for good, in small transactions beside other traffic. The record of what was
done with them stays. --status says which: redriven, succeeded, failed_again and discarded letters are done with. Letters that
wait are deleted only if --status waiting asks for it.

With --rule, purge does once what a Retention of the service does again and again. A rule has words such as status=succeeded, class=permanent,
reason=declined, cause=<hash> and older-than=30d, or keep. A word of several values is there several times. The first rule that a
letter matches decides.

--dry-run says how many letters would be deleted, by rule if there are rules.`,
		Example: `  redrive purge --status succeeded --status discarded --older-than 30d --reason "retention"
  redrive purge --rule "reason=suspected_fraud keep" --rule "status=succeeded status=discarded older-than=30d" --dry-run
  redrive purge --status discarded --cause 9f3a12bc --older-than 0s --reason "personal data" --yes`,
		Args: arguments(0, 0, "none: flags choose the letters"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if len(rules) > 0 {
				return a.retain(ctx, rules, reason, dryRun, yes, &chosen)
			}
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
				if a.json {
					return a.screen.JSON(purgeReport{Chosen: s.Number, DryRun: true})
				}
				a.screen.Line("would delete %s", several(s.Number, "letter"))
				return nil
			}
			if !yes {
				if err := a.screen.Confirm("delete %s of %s for good?", several(s.Number, "letter"),
					a.owner()); err != nil {
					return err
				}
			}
			report := purgeReport{Chosen: s.Number}
			report.Purged, err = store.Purge(ctx, s.Filter, letters.Act{By: a.settings.by, Reason: reason})
			report.Left = max(0, s.Number-report.Purged)
			if a.json {
				return errors.Join(err, a.screen.JSON(report))
			}
			a.screen.Line("deleted %s", several(report.Purged, "letter"))
			return err
		},
	}
	cmd.Flags().StringVar(&olderThan, "older-than", "",
		"failed at least so long ago: 30d, 12h; 0s is every age (required)")
	cmd.Flags().StringArrayVar(&rules, "rule", nil,
		"which letters, from which age; several rules are tried in their order")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say how many letters would be deleted, with --rule by rule, and "+
		"delete nothing")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record (required)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	chosen.flags(cmd, a.process.In, true)
	return cmd
}
