package command

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
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
			all, store, err := a.openCampaigns(ctx, true, campaigns.Config{})
			if err != nil {
				return err
			}
			r := campaigns.Request{Edit: edit}
			for _, arg := range args {
				l, _, err := find(ctx, store, arg)
				if err == nil {
					_, err = a.open(ctx, store, l)
				}
				if err != nil {
					return err
				}
				r.Seqs = append(r.Seqs, l.Seq)
			}
			plan, err := all.Plan(ctx, r)
			if err != nil {
				return err
			}
			if unmasked {
				if err := a.unmask(ctx, store, reason, r.Seqs...); err != nil {
					return err
				}
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
				a.diff(*l.Edited)
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
func (a *app) diff(whole campaigns.Diff) {
	d := whole.Masked(a.privacy)
	if d.Refused != "" {
		a.screen.Styled(screen.Red, "  refused: %s", d.Refused)
		return
	}
	for _, key := range d.Metadata {
		if key.Before != nil {
			a.screen.Styled(screen.Red, "- %s = %s", key.Key, *key.Before)
		}
		if key.After != nil {
			a.screen.Styled(screen.Green, "+ %s = %s", key.Key, *key.After)
		}
	}
	if d.Withheld != "" {
		a.screen.Line("  how the payload changes is not shown: %s", d.Withheld)
		return
	}
	if d.Before == nil && d.After == nil {
		if len(d.Metadata) == 0 {
			a.screen.Line("  nothing changes")
		}
		return
	}
	if a.settings.redact != "" {
		a.screen.Line("  the payload changes; it is not shown, because payloads are redacted")
		return
	}
	before, after := maskedLines(whole.Before, d.Before), maskedLines(whole.After, d.After)
	lines := changed(before, after)
	if len(lines) == 0 {
		a.screen.Line("  the payload changes where it is masked; --unmasked shows how")
		return
	}
	for _, line := range lines {
		style := screen.Plain
		switch line[0] {
		case '-':
			style = screen.Red
		case '+':
			style = screen.Green
		}
		a.screen.Styled(style, "%s", line)
	}
	if d.Cut {
		a.screen.Line("… there is more")
	}
}

// payloadLine is a line of a payload: as it is, and as it is shown.
type payloadLine struct{ is, shown string }

// maskedLines returns the lines of a payload. So a change of what is masked is a change, too. If the mask joined lines,
// they are compared as they are shown.
func maskedLines(payload, masked []byte) (lines []payloadLine) {
	is, shown := payloadLines(payload), payloadLines(masked)
	if len(is) != len(shown) {
		is = shown
	}
	for i := range shown {
		lines = append(lines, payloadLine{is[i], shown[i]})
	}
	return lines
}

func payloadLines(payload []byte) []string {
	shown, err := screen.Payload(payload, screen.FormatAuto, 0)
	if err != nil || shown == "" {
		return nil
	}
	return strings.Split(strings.TrimRight(shown, "\n"), "\n")
}

// changed compares lines: what both begin and end with is left out, but for two lines around the change.
func changed(before, after []payloadLine) (lines []string) {
	const around = 2
	head := 0
	for head < len(before) && head < len(after) && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < len(before)-head && tail < len(after)-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	for _, line := range before[max(0, head-around):head] {
		lines = append(lines, "  "+line.shown)
	}
	for _, line := range before[head : len(before)-tail] {
		lines = append(lines, "- "+line.shown)
	}
	for _, line := range after[head : len(after)-tail] {
		lines = append(lines, "+ "+line.shown)
	}
	for _, line := range after[len(after)-tail : min(len(after), len(after)-tail+around)] {
		lines = append(lines, "  "+line.shown)
	}
	return lines
}
