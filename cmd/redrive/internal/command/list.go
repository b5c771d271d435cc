package command

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func (a *app) list() *cobra.Command {
	var chosen choice
	var limit int
	var newest bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List letters",
		Long: `list prints letters in the order in which they arrived, or with --newest the other way round, without their payloads.
Without --status these are the letters that wait. A flag takes one value, as it was typed, and is given once for each. A letter must satisfy every flag.`,
		Example: `  redrive list --cause 9f3a12bc
  redrive list --topic orders --since 2h --limit 20
  redrive list --after 1042
  redrive list --newest --limit 20
  redrive list --status all --id 7f0c --json`,
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := firstOf(within("--limit", limit, 1, math.MaxInt),
				notNegative("--after", chosen.after)); err != nil {
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
			f.After, f.NewestFirst = chosen.after, newest
			t := &screen.Table{Columns: []screen.Column{
				{Name: "SEQ", Right: true, Style: screen.Bold}, {Name: "STATUS"},
				{Name: "LAST FAILED", Drop: 2, Style: screen.Dim},
				{Name: "TOPIC", Min: 8, Drop: 4}, {Name: "HANDLER", Min: 8, Drop: 3},
				{Name: "REASON", Min: 14, Drop: 5},
				// an id of 36 characters is whole: a UUID
				{Name: "ID", Min: 36}, {Name: "DESCRIPTION", Min: 10, Drop: 1},
			}}
			last, more := int64(0), false
			for l, err := range heads(cmd.Context(), d, f) {
				if err != nil {
					return err
				}
				if limit == 0 {
					more = true
					break
				}
				limit--
				last = l.Seq
				if a.json {
					if err := a.screen.JSON(l); err != nil {
						return err
					}
					continue
				}
				t.Row(l.Seq, screen.Span{Text: stateOf(l), Style: styleOf(letters.Status(l.Status))}, a.stamped(l.LastFailedAt), l.Topic,
					l.Handler,
					l.Reason, l.ID, l.Description)
			}
			if last == 0 {
				a.screen.Note("no letter is chosen")
				return nil
			}
			if !a.json {
				a.screen.Table(t)
			}
			if more {
				a.screen.Note("there are more: --after %d goes on", last)
			}
			return nil
		},
	}
	chosen.flags(cmd, a.process.In, true)
	cmd.Flags().IntVar(&limit, "limit", letters.DefaultLimit, "the largest number of letters")
	cmd.Flags().Int64Var(&chosen.after, "after", 0, "only letters behind this SEQ, in the order asked for")
	cmd.Flags().BoolVar(&newest, "newest", false, "the latest first")
	return cmd
}

// stateOf is the status of a letter, and whether a program works on it.
func stateOf(h operate.LetterData) string {
	if h.LeasedBy == "" {
		return h.Status
	}
	return h.Status + ", leased by " + h.LeasedBy
}
