package command

import (
	"cmp"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
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
			q := operate.FilterValues(f)
			var groups []operate.CauseData
			for len(groups) < limit {
				most := min(limit-len(groups), operate.MostCauses)
				if q.Set("limit", number(most)); len(groups) > 0 {
					q.Set("after", number(len(groups)))
				}
				page, err := d.causes(cmd.Context(), q)
				if err != nil {
					return err
				}
				if groups = append(groups, page...); len(page) < most {
					break
				}
			}
			if len(groups) == 0 {
				a.screen.Note("no letter is waiting or chosen: --status redriven --status succeeded --status failed_again shows what was redriven, " +
					"--status discarded what was given up")
				return nil
			}
			columns := []screen.Column{
				{Name: "CAUSE", Style: screen.Blue}, {Name: "LETTERS", Right: true, Style: screen.Bold},
				{Name: "LAST MIN", Right: true, Drop: 6, Extra: true},
				{Name: "FIRST", Drop: 4, Extra: true, Style: screen.Dim},
				{Name: "LAST", Drop: 1, Style: screen.Dim}, {Name: "TOPIC", Min: 8}, {Name: "HANDLER", Min: 8, Drop: 2},
				{Name: "CLASS", Drop: 5, Extra: true}, {Name: "REASON", Min: 8},
				{Name: "EXAMPLE", Right: true, Drop: 3}, {Name: "DESCRIPTION", Min: 11},
			}
			if slices.ContainsFunc(groups, func(g operate.CauseData) bool { return g.Words() != "" }) {
				columns = append(columns, screen.Column{Name: "NOTE", Min: 11})
			}
			err = rows(a, groups, columns, func(g operate.CauseData) []any {
				return []any{a.shortened(g.Cause), g.Count, g.LastMinute, a.when(g.FirstFailedAt), a.when(g.LastFailedAt), g.Topic,
					g.Handler, g.Class, g.Reason, g.Example, g.Description, g.Words()}[:len(columns)]
			})
			switch {
			case err != nil || len(groups) < limit:
			case limit == mostCauses:
				a.screen.Note("there may be more causes, with fewer letters: choose by --topic, --handler or --since")
			default:
				a.screen.Note("there may be more causes, with fewer letters: --limit %d shows more", min(10*limit, mostCauses))
			}
			return err
		},
	}
	chosen.flags(cmd, a.process.In, true)
	cmd.Flags().IntVar(&limit, "limit", 100, "the largest number of causes")
	return cmd
}

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
			if err := cmp.Or(within("--limit", limit, 1, math.MaxInt), notNegative("--after", chosen.after)); err != nil {
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
				t.Row(l.Seq, screen.Span{Text: stateOf(l), Style: styleOf(letters.Status(l.Status))}, a.when(l.LastFailedAt), l.Topic,
					l.Handler, l.Reason, l.ID, l.Description)
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

func (a *app) audit() *cobra.Command {
	var by, kinds, ids, redriveIDs []string
	var since, until string
	var newest bool
	var limit int
	var after int64
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
			if err = cmp.Or(within("--limit", limit, 1, letters.MaxLimit), notNegative("--after", after)); err != nil {
				return err
			}
			q := url.Values{"by": by, "kind": kinds, "id": ids, "redrive-id": redriveIDs, "since": {since}, "until": {until}}
			if len(args) > 0 {
				if _, err := seqsOf(args, "redrive list prints it; --id takes ids of messages"); err != nil {
					return err
				}
				q["letter"] = args
			}
			of, err := operate.ParseRecord(q, time.Now())
			if err != nil {
				return flagged(err)
			}
			q.Set("since", operate.Stamp(of.Filter.Since)) // by the clock of this machine
			q.Set("until", operate.Stamp(of.Filter.Until))
			onPage(q, newest, after, limit)
			d, err := a.desk(cmd.Context())
			if err != nil {
				return err
			}
			var page operate.EventsData
			if err = d.Get(cmd.Context(), &page, q, "audit"); err != nil {
				return err
			}
			events := page.Events
			if len(events) == 0 {
				a.screen.Note("the record has no such entry")
				return nil
			}
			if err := a.events(events); err != nil {
				return err
			}
			if len(args) == 0 && len(events) == limit {
				a.screen.Note("there may be more: --after %d goes on", events[len(events)-1].Number)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&ids, "id", nil, "message id")
	flags.StringArrayVar(&kinds, "kind", nil, "redriven, succeeded, failed_again, discarded, edited, selected, purged, …")
	flags.StringArrayVar(&by, "who", nil, "person or program")
	flags.StringArrayVar(&redriveIDs, "redrive-id", nil, "id of a drain or campaign")
	flags.StringVar(&since, "since", "", "at or after this time: 2h, 3d, 2026-03-01T12:00:00Z")
	flags.StringVar(&until, "until", "", "before this time")
	flags.BoolVar(&newest, "newest", false, "the latest first")
	flags.IntVar(&limit, "limit", letters.DefaultLimit, "the largest number of entries")
	flags.Int64Var(&after, "after", 0, "only entries behind this number")
	return cmd
}

// events prints entries of the record.
func (a *app) events(events []operate.EventData) error {
	columns := []screen.Column{
		{Name: "NUMBER", Right: true, Drop: 5, Style: screen.Dim}, {Name: "AT", Style: screen.Dim},
		{Name: "WHAT", Style: screen.Bold}, {Name: "SEQ", Right: true}, {Name: "ID", Min: 10, Drop: 4},
		{Name: "BY", Min: 8}, {Name: "REASON", Min: 16}, {Name: "REDRIVE ID", Min: 8, Drop: 2},
	}
	detailed := !a.screen.Terminal() || slices.ContainsFunc(events, func(e operate.EventData) bool { return e.Detail != "" })
	if detailed {
		columns = append(columns, screen.Column{Name: "DETAIL", Min: 10, Drop: 3})
	}
	return rows(a, events, columns, func(e operate.EventData) []any {
		cells := []any{e.Number, a.when(e.At), e.Kind, e.Seq, e.ID, e.By, e.Reason, e.RedriveID, e.Detail}
		return cells[:len(columns)]
	})
}
