package command

import (
	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/linediff"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

func (a *app) diffs() *cobra.Command {
	var e editFlags
	var unmasked bool
	var reason string
	cmd := &cobra.Command{
		Use:   "diff SEQ|ID...",
		Short: "Show what an edit would change in letters",
		Long: `diff shows what --edit, --set and --unset of redrive redrive would change, line by line. It changes nothing. A sealed letter needs
--keys.

Secrets are masked: redrive help privacy says how. --unmasked shows them, and is kept on record.`,
		Example: `  redrive diff 1042 --edit '{"currency":"EUR"}'
  redrive diff 1042 1043 --edit @patch.json --set tenant=blue --unset trace`,
		Args: arguments(1, campaigns.Samples, "at most 10 SEQs or ids"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			edit, err := e.read()
			if err != nil {
				return err
			}
			if edit == nil {
				return wrong("no flag edits anything: add --edit, --set or --unset")
			}
			if unmasked && a.settings.url != "" {
				return wrong("--unmasked is for a database: an API masks what an edit changes; redrive show --unmasked shows payloads")
			}
			d, err := a.campaignDesk(ctx, true, campaigns.Config{})
			if err != nil {
				return err
			}
			r := campaigns.Request{Edit: edit}
			for _, arg := range args {
				l, _, err := find(ctx, d, arg)
				if err == nil && l.SealKey != "" {
					err = a.opens(ctx, d, l.Seq)
				}
				if err != nil {
					return err
				}
				r.Seqs = append(r.Seqs, l.Seq)
			}
			if unmasked {
				if err := a.unmask(ctx, d, reason, r.Seqs...); err != nil {
					return err
				}
			}
			plan, _, err := d.Plan(ctx, a.person(""), r, 0)
			if err != nil {
				return err
			}
			if len(plan.Sample) == 0 {
				return none("no letter of these waits")
			}
			refused := 0
			for _, l := range plan.Sample {
				if l.Edited == nil {
					continue
				}
				if l.Edited.Refused != "" {
					refused++
				}
				if a.json {
					l.Edited = l.Edited.Masked(a.privacy)
					if err := a.screen.JSON(l); err != nil {
						return err
					}
					continue
				}
				a.screen.Styled(screen.Bold, "SEQ %d, id %s", l.Seq, l.ID)
				a.diff(l.Edited)
			}
			if refused > 0 {
				return partly("the edit does not fit %s, which a campaign would refuse", several(refused, "letter"))
			}
			return nil
		},
	}
	e.flags(cmd.Flags())
	unmaskFlag(cmd.Flags(), &unmasked, &reason)
	return cmd
}

// diff prints what an edit does: lines that go with a minus, lines that come with a plus.
func (a *app) diff(edited *inside.Diff) {
	d := operate.DifferenceOf(edited, a.privacy)
	if d.Refused != "" {
		a.screen.Styled(screen.Red, "  refused: %s", d.Refused)
		return
	}
	for _, key := range d.Metadata {
		if key.Had {
			a.screen.Styled(screen.Red, "- %s = %s", key.Key, key.Before)
		}
		if key.Has {
			a.screen.Styled(screen.Green, "+ %s = %s", key.Key, key.After)
		}
	}
	switch {
	case d.Withheld != "":
		a.screen.Line("  how the payload changes is not shown: %s", d.Withheld)
	case d.Nothing:
		a.screen.Line("  nothing changes")
	case a.settings.redact != "" && (d.Bytes || d.Space || len(d.Lines) > 0):
		a.screen.Line("  the payload changes; it is not shown, because payloads are redacted")
	case d.Bytes:
		a.screen.Line("  the payload changes; it is no text, and so is not shown")
	case d.Space:
		a.screen.Line("  the payload changes in white space alone")
	default:
		a.lines(d)
	}
}

func (a *app) lines(d *operate.Difference) {
	for _, line := range d.Lines {
		switch line.Kind {
		case linediff.Gone:
			a.screen.Styled(screen.Red, "- %s", line.Text)
		case linediff.Come:
			a.screen.Styled(screen.Green, "+ %s", line.Text)
		case linediff.Skipped:
			a.screen.Styled(screen.Dim, "… %s …", several(line.Lines, "line"))
		default:
			a.screen.Line("  %s", line.Text)
		}
	}
	if d.Cut {
		a.screen.Line("… there is more")
	}
}
