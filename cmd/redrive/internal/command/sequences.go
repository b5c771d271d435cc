package command

import (
	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/sequence"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func (a *app) sequences() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "sequences",
		Short: "List the keys whose messages wait for one that failed",
		Long: `sequences lists what Config.Ordered keeps in order: each key of a partition of which a message failed, how many of its messages wait,
and when the first one is tried again. A key without messages that wait is not there. LATE is a first message that should have been tried a minute
ago: look for the instance that has the partition. Times are UTC.`,
		Example: `  redrive sequences
  redrive sequences --json | jq -r 'select(.late) | .key'`,
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := within("--limit", limit, 1, letters.MaxLimit); err != nil {
				return err
			}
			db, err := a.database(cmd.Context())
			if err != nil {
				return err
			}
			all, err := sequence.List(cmd.Context(), db, a.settings.service, limit)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				a.screen.Note("no messages of %s wait in the order of their key", a.owner())
				return nil
			}
			return a.sequenceTable(all, limit)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "the largest number of keys")
	return cmd
}

func (a *app) sequenceTable(all []sequence.Parked, limit int) error {
	t := &screen.Table{Columns: []screen.Column{
		{Name: "KEY", Style: screen.Bold, Min: 8}, {Name: "MESSAGES", Right: true}, {Name: "DUE", Style: screen.Dim},
		{Name: "STATE", Style: screen.Amber}, {Name: "TOPIC", Min: 8}, {Name: "PART", Right: true, Drop: 2},
		{Name: "OFFSET", Right: true, Drop: 3}, {Name: "FIRST", Min: 8, Drop: 1},
	}}
	for _, p := range all {
		p.First = a.privacy.Text(p.First)
		key := "(none)"
		if p.Key != nil {
			key = a.privacy.Text(*p.Key)
			p.Key = &key
		}
		if a.json {
			if err := a.screen.JSON(p); err != nil {
				return err
			}
			continue
		}
		state := "waits"
		switch {
		case p.Held:
			state = "held"
		case p.Late:
			state = "late"
		}
		t.Row(key, p.Messages, a.when(p.Due), state, p.Topic, p.Partition, p.Position, p.First)
	}
	if a.json {
		return nil
	}
	a.screen.Table(t)
	if len(all) == limit {
		a.screen.Note("there may be more keys, with fewer messages: --limit %d shows more", min(10*limit, letters.MaxLimit))
	}
	return nil
}
