package command

import (
	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func (a *app) sequences() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "sequences",
		Short: "List the keys whose messages wait for one that failed, and decide about them",
		Long: `sequences lists what Config.Ordered keeps in order: each key of a partition of which a message failed, how many of its messages wait,
and when the first one is tried again. A key without messages that wait is not there. Times are UTC.

SEQ names the first message, and so the key. HELD is a message that failed for good, with Ordered.Hold: its key stands until you release, skip or
discard it. LATE is one that should have been tried, or decided about, a minute ago: look for the instance that has the partition.

A decision is written down with your name and reason. The instance that has the partition carries it out within seconds, in the place of the
message. If none has it, the message stands until one does.`,
		Example: `  redrive sequences
  redrive sequences show 1042
  redrive sequences release 1042 --reason "INC-7: the ledger is repaired"
  redrive sequences --json | jq -r 'select(.held) | .seq' | xargs redrive sequences release --yes --reason INC-7`,
		Args: arguments(0, 0, "none, or list, show, release, skip or discard"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listSequences(cmd, limit) },
	}
	list := &cobra.Command{
		Use: "list", Short: "List the keys whose messages wait",
		Long: "list is what redrive sequences does.", Example: "  redrive sequences list --limit 10",
		Args: arguments(0, 0, "none"), RunE: cmd.RunE,
	}
	for _, c := range []*cobra.Command{cmd, list} {
		c.Flags().IntVar(&limit, "limit", 100, "the largest number of keys")
	}
	cmd.AddCommand(list, a.showSequence(), a.decide(sequence.Release, "Let the message run again, in its place",
		`release lets the held message run again, at once and before those behind it: it is the redrive of a message that holds its key. It has its
delays again, but for the first. If it fails for good once more, it is held again.`),
		a.decide(sequence.Skip, "Give the message up to the dead letters, and go on with the next one",
			`skip makes a dead letter of the first message, without a call of its handler. Your name and reason are in the letter. A redrive of the letter
comes behind what was applied meanwhile.`),
		a.decide(sequence.Discard, "Drop the message, and go on with the next one",
			`discard drops the first message: it has no effect and becomes no letter. The channel logs it. With --all it drops the messages behind it too that
wait now; one whose turn comes at this moment may still be handled.`))
	return cmd
}

func (a *app) listSequences(cmd *cobra.Command, limit int) error {
	if err := within("--limit", limit, 1, letters.MaxLimit); err != nil {
		return err
	}
	all, err := a.parkedKeys(cmd.Context(), limit)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		a.screen.Note("no messages of %s wait in the order of their key", a.owner())
		return nil
	}
	return a.sequenceTable(all, limit)
}

func (a *app) sequenceTable(all []sequence.Parked, limit int) error {
	t := &screen.Table{Columns: []screen.Column{
		{Name: "SEQ", Right: true}, {Name: "KEY", Style: screen.Bold, Min: 8}, {Name: "MESSAGES", Right: true},
		{Name: "DUE", Style: screen.Dim},
		{Name: "STATE", Style: screen.Amber}, {Name: "TOPIC", Min: 8}, {Name: "PART", Right: true, Drop: 2},
		{Name: "OFFSET", Right: true, Drop: 3}, {Name: "FIRST", Min: 8, Drop: 1},
	}}
	for _, p := range all {
		key := a.maskSequence(&p)
		if a.json {
			if err := a.screen.JSON(p); err != nil {
				return err
			}
			continue
		}
		t.Row(p.Seq, key, p.Messages, a.when(p.Due), waitsFor(p), p.Topic, p.Partition, p.Position, p.First)
	}
	if a.json {
		return nil
	}
	a.screen.Table(t)
	if len(all) == limit {
		a.screen.Note("there may be more keys, with fewer messages: --limit %d shows more",
			min(10*limit, letters.MaxLimit))
	}
	return nil
}

// maskSequence masks what a message says of itself, and returns its key as a person reads it.
func (a *app) maskSequence(p *sequence.Parked) (key string) {
	p.First, p.Why = a.privacy.Text(p.First), a.privacy.Text(p.Why)
	if p.Key == nil {
		return "(none)"
	}
	key = a.privacy.Text(*p.Key)
	p.Key = &key
	return key
}

func waitsFor(p sequence.Parked) string {
	switch {
	case p.Decided != "" && p.Late:
		return "late " + p.Decided
	case p.Decided != "":
		return p.Decided
	case p.Held:
		return "held"
	case p.Late:
		return "late"
	}
	return "waits"
}
