package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/erasure"
)

func (a *app) erase() *cobra.Command {
	var request erasure.Request
	var metadata []string
	var keys string
	var yes bool
	cmd := &cobra.Command{
		Use:   "erase",
		Short: "Erase a person's data, by message id or metadata",
		Long: `erase removes what Spillway keeps of a person in the database: payload, metadata and texts of the letters, whatever their state; messages
that wait for a retry; recorded outputs of the receiver's keys; and what campaigns say. The rows of the letters and their record stay, and say who erased them and
why. The value itself is not on record, only a hash of it.

It is found by --id or by --metadata. All pairs of --metadata must match. What something works on is left alone and counted: run erase again later (exit code 5).
Start with --dry-run.

By --metadata, recorded outputs of messages that succeeded and have no letter are not found, nor what is sealed in letters. erase counts both: give their --id.

erase does not reach topics of a broker, backups, and old versions of rows that the database keeps: docs/privacy.md says what to do with these.`,
		Example: `  redrive erase --metadata customer=4711 --reason "request 17" --dry-run
  redrive erase --id 7f0c2b1e --id 9a31d0c4 --reason "request 17" --forget-ids --yes`,
		Args: arguments(0, 0, "none: flags say whose data are erased"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			var err error
			if request.Metadata, err = pairs(metadata); err != nil {
				return err
			}
			switch {
			case len(request.IDs) == 0 && len(metadata) == 0:
				return wrong("nothing is chosen: add --id or --metadata key=value")
			case len(request.IDs) > 0 && len(metadata) > 0:
				return wrong("--id and --metadata are both given: use one, and run erase twice")
			case request.Reason == "" && !request.DryRun:
				return wrong("--reason is empty: say why, for those who read the record later, without the person's name")
			case keys != "keep" && keys != "remove":
				return wrong("--receiver-keys is %q: use keep or remove", keys)
			}
			request.RemoveKeys, request.By = keys == "remove", a.settings.by
			d, err := a.desk(ctx)
			if err != nil {
				return err
			}
			if !request.DryRun && !yes {
				look := request
				look.DryRun = true
				found, err := d.Erase(ctx, look)
				if err != nil {
					return leftInHand(found, err)
				}
				if err := a.screen.Confirm("erase %s of %s for good?", strings.Join(parts(found), ", "), a.owner()); err != nil {
					return err
				}
			}
			report, err := d.Erase(ctx, request)
			if report.Selector == "" {
				return leftInHand(report, err)
			}
			return errors.Join(a.erased(report, request.DryRun), leftInHand(report, err))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&request.IDs, "id", nil, "message id")
	idFile(f, a.process.In)
	f.StringArrayVar(&metadata, "metadata", nil, "metadata key=value")
	f.StringVar(&keys, "receiver-keys", "keep",
		"keep: messages that come again are absorbed; remove: they are applied again")
	f.BoolVar(&request.ForgetIDs, "forget-ids", false,
		"replace message ids by hashes, in the record too, and remove the keys")
	f.BoolVar(&request.DryRun, "dry-run", false, "say what would be erased, and change nothing")
	f.StringVar(&request.Reason, "reason", "", "why, for the record, without the person's name (required)")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// pairs reads key=value pairs, none of them empty.
func pairs(list []string) (map[string]string, error) {
	all, err := operate.Pairs("metadata", list)
	for key, value := range all {
		if value == "" {
			return nil, wrong("--metadata is %q: want key=value", key+"=")
		}
	}
	return all, flagged(err)
}

// parts are what was found, in words.
func parts(r erasure.Report) []string {
	return []string{several(r.Letters, "letter"), several(r.Delayed, "message") + " that wait", several(r.Keys, "key"),
		several(r.Texts, "text") + " of campaigns"}
}

func (a *app) erased(r erasure.Report, dryRun bool) error {
	if a.json {
		return a.screen.JSON(struct {
			erasure.Report
			DryRun bool `json:"dry_run,omitempty"`
		}{r, dryRun})
	}
	did := "erased "
	if dryRun {
		did = "would erase "
	}
	a.screen.Styled(screen.Bold, "%s%s", did, strings.Join(parts(r), ", "))
	if inHand(r) > 0 {
		a.screen.Line("in hand: %s, %s that wait, %s, %s", several(r.LettersInHand, "letter"),
			several(r.DelayedInHand, "message"), several(r.KeysInHand, "key"),
			several(len(r.CampaignsOpen), "campaign"))
		for _, id := range r.CampaignsOpen {
			a.screen.Line("  campaign %s has not ended", id)
		}
	}
	if inHand(r) > 0 && dryRun {
		a.screen.Line("what is in hand stays: erase ends with exit code 5 until leases are over and campaigns have ended")
	}
	if n := r.KeysUnsearched; n > 0 {
		a.screen.Line("not looked into: %s with recorded outputs, of messages without a letter: give --id",
			several(n, "key"))
	}
	if n := r.SealedUnsearched; n > 0 {
		a.screen.Line("not looked into: %s, apart from metadata that stay readable: give --id",
			several(n, "sealed letter"))
	}
	if !dryRun {
		a.screen.Line("on record as %s", r.Selector)
	}
	return nil
}

// inHand is how many things were found and left alone.
func inHand(r erasure.Report) int {
	return r.LettersInHand + r.DelayedInHand + r.KeysInHand + len(r.CampaignsOpen)
}

// leftInHand gives an error of Erase its exit code.
func leftInHand(r erasure.Report, err error) error {
	if errors.Is(err, erasure.ErrInHand) {
		return partly("%d left, because something works on them: run erase again when leases are over and campaigns have ended", inHand(r))
	}
	if err == nil || r.Selector == "" {
		return err
	}
	return fmt.Errorf("erase ended early; what was done is done, and it can run again: %w", err)
}
