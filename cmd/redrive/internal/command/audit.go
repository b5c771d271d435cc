package command

import (
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func (a *app) audit() *cobra.Command {
	var f letters.EventFilter
	var kinds []string
	var since, until string
	cmd := &cobra.Command{
		Use:   "audit [SEQ]",
		Short: "Print who did what to which letter, and why",
		Long: `audit prints the record of changes, oldest first: redriven, discarded, edited, purged and so on. With a SEQ it prints the life
of that letter's message, from its arrival. The record is never changed: a purged letter has its entries still.`,
		Example: `  redrive audit --since 1h
  redrive audit 1042
  redrive audit --kind discarded --who ann --json
  redrive audit --newest --limit 20`,
		Args: arguments(0, 1, "a SEQ, or nothing"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			err = firstOf(oneOf("--kind", kinds, inside.EventKinds), within("--limit", f.Limit, 1, letters.MaxLimit),
				notNegative("--after", f.After))
			if err != nil {
				return err
			}
			for _, kind := range kinds {
				f.Kinds = append(f.Kinds, letters.EventKind(kind))
			}
			if f.Since, err = moment("since", since); err != nil {
				return err
			}
			if f.Until, err = moment("until", until); err != nil {
				return err
			}
			seq := int64(0)
			if len(args) > 0 {
				if seq, err = strconv.ParseInt(args[0], 10, 64); err != nil || seq < 1 {
					return wrong("SEQ is %q: it must be a number, as redrive list prints it; --id takes ids of messages", args[0])
				}
			}
			d, err := a.desk(cmd.Context())
			if err != nil {
				return err
			}
			events, err := d.Audit(cmd.Context(), operate.Record{Filter: f, Seq: seq})
			if err != nil {
				return err
			}
			if len(events) == 0 {
				a.screen.Note("the record has no such entry")
				return nil
			}
			if err := a.events(events); err != nil {
				return err
			}
			if seq == 0 && len(events) == limitOf(f) {
				a.screen.Note("there may be more: --after %d goes on", events[len(events)-1].Number)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.MessageIDs, "id", nil, "message id")
	flags.StringArrayVar(&kinds, "kind", nil, "redriven, succeeded, failed_again, discarded, edited, selected, purged, …")
	flags.StringArrayVar(&f.By, "who", nil, "person or program")
	flags.StringArrayVar(&f.RedriveIDs, "redrive-id", nil, "id of a drain or campaign")
	flags.StringVar(&since, "since", "", "at or after this time: 2h, 3d, 2026-03-01T12:00:00Z")
	flags.StringVar(&until, "until", "", "before this time")
	flags.BoolVar(&f.NewestFirst, "newest", false, "the latest first")
	flags.IntVar(&f.Limit, "limit", letters.DefaultLimit, "the largest number of entries")
	flags.Int64Var(&f.After, "after", 0, "only entries behind this number")
	return cmd
}

func limitOf(f letters.EventFilter) int {
	if f.Limit == 0 {
		return letters.DefaultLimit
	}
	return f.Limit
}

// events prints entries of the record.
func (a *app) events(events []operate.EventData) error {
	t := &screen.Table{Columns: []screen.Column{
		{Name: "NUMBER", Right: true, Drop: 5, Style: screen.Dim}, {Name: "AT", Style: screen.Dim},
		{Name: "WHAT", Style: screen.Bold}, {Name: "SEQ", Right: true}, {Name: "ID", Min: 10, Drop: 4},
		{Name: "BY", Min: 8},
		{Name: "REASON", Min: 16}, {Name: "REDRIVE ID", Min: 8, Drop: 2}, {Name: "DETAIL", Min: 10, Drop: 3},
	}}
	detailed := slices.ContainsFunc(events, func(e operate.EventData) bool { return e.Detail != "" })
	for _, e := range events {
		if a.json {
			if err := a.screen.JSON(e); err != nil {
				return err
			}
			continue
		}
		t.Row(e.Number, a.stamped(e.At), e.Kind, e.Seq, e.ID, e.By, e.Reason, e.RedriveID, e.Detail)
	}
	if a.json {
		return nil
	}
	if !detailed && a.screen.Terminal() {
		t.Columns = t.Columns[:len(t.Columns)-1]
		t.Trim()
	}
	a.screen.Table(t)
	return nil
}
