package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/internal/order/parked"
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
		Args: arguments(0, 0, "none, or show, release, skip or discard"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listSequences(cmd, limit) },
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "the largest number of keys")
	cmd.AddCommand(a.showSequence(), a.decide(parked.Release, "Let the message run again, in its place",
		`release lets the held message run again, at once and before those behind it: it is the redrive of a message that holds its key. It has its
delays again, but for the first. If it fails for good once more, it is held again.`),
		a.decide(parked.Skip, "Give the message up to the dead letters, and go on with the next one",
			`skip makes a dead letter of the first message, without a call of its handler. Your name and reason are in the letter. A redrive of the letter
comes behind what was applied meanwhile.`),
		a.decide(parked.Discard, "Drop the message, and go on with the next one",
			`discard drops the first message: it has no effect and becomes no letter. The channel logs it. With --all it drops the messages behind it too that
wait now; one whose turn comes at this moment may still be handled.`))
	return cmd
}

func (a *app) listSequences(cmd *cobra.Command, limit int) error {
	if err := within("--limit", limit, 1, letters.MaxLimit); err != nil {
		return err
	}
	d, err := a.sharedDesk(cmd.Context())
	if err != nil {
		return err
	}
	var page operate.SequencesData
	if err := d.Get(cmd.Context(), &page, url.Values{"limit": {number(limit)}}, "sequences"); err != nil {
		return err
	}
	if len(page.Sequences) == 0 {
		a.screen.Note("no messages of %s wait in the order of their key", a.owner())
		return nil
	}
	return a.sequenceTable(page.Sequences, limit)
}

func (a *app) sequenceTable(all []parked.Parked, limit int) error {
	err := rows(a, all, []screen.Column{
		{Name: "SEQ", Right: true}, {Name: "KEY", Style: screen.Bold, Min: 8}, {Name: "MESSAGES", Right: true},
		{Name: "DUE", Style: screen.Dim}, {Name: "STATE", Style: screen.Amber}, {Name: "TOPIC", Min: 8}, {Name: "PART", Right: true, Drop: 2},
		{Name: "OFFSET", Right: true, Drop: 3}, {Name: "FIRST", Min: 8, Drop: 1},
	}, func(p parked.Parked) []any {
		return []any{p.Seq, keyOf(p), p.Messages, a.when(p.Due), operate.Waiting(p), p.Topic, p.Partition, p.Position, p.First}
	})
	if len(all) == limit && !a.json {
		a.screen.Note("there may be more keys, with fewer messages: --limit %d shows more",
			min(10*limit, letters.MaxLimit))
	}
	return err
}

// keyOf is a key as a person reads it.
func keyOf(p parked.Parked) string {
	if p.Key == nil {
		return "(none)"
	}
	return *p.Key
}

const asSequences = "redrive sequences prints it"

// seqsOf reads SEQs, which are as a command prints them.
func seqsOf(args []string, as string) (seqs []int64, err error) {
	for _, arg := range args {
		seq, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || seq < 1 {
			return nil, wrong("SEQ is %q: it must be a number, as %s", arg, as)
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}

func (a *app) showSequence() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "show SEQ", Short: "Show the messages of a key that wait, and why the first one does",
		Long: `show prints a key, why its first message waits, and the messages behind it in their order. Payloads are not shown. With --json it prints a
message a line.`,
		Example: "  redrive sequences show 1042",
		Args:    arguments(1, 1, "a SEQ"),
		RunE: func(cmd *cobra.Command, args []string) error {
			seqs, err := seqsOf(args, asSequences)
			if err = cmp.Or(err, within("--limit", limit, 1, letters.MaxLimit)); err != nil {
				return err
			}
			d, err := a.sharedDesk(cmd.Context())
			if err != nil {
				return err
			}
			var v operate.SequenceData
			if err := d.GetItem(cmd.Context(), &v, url.Values{"limit": {number(limit)}}, "sequences", number(seqs[0])); err != nil {
				return undecided(seqs[0], err)
			}
			return a.parked(v)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "the largest number of messages")
	return cmd
}

func (a *app) parked(v operate.SequenceData) error {
	if !a.json {
		if len(v.Waiting) > 0 {
			a.parkedHead(v.Parked, v.Waiting[0])
		}
		a.screen.Head("messages")
	}
	err := rows(a, v.Waiting, []screen.Column{
		{Name: "SEQ", Right: true}, {Name: "OFFSET", Right: true}, {Name: "ID", Min: 8, Style: screen.Bold},
		{Name: "SENT", Style: screen.Dim, Drop: 1}, {Name: "BYTES", Right: true, Drop: 2},
		{Name: "DECIDED", Style: screen.Amber},
	}, func(m operate.ParkedData) []any {
		return []any{m.Seq, m.Position, m.ID, a.when(m.SentAt), m.Bytes, m.Decided}
	})
	if !a.json && len(v.Waiting) < v.Messages {
		a.screen.Note("%s wait: --limit shows more", several(v.Messages, "message"))
	}
	return err
}

func (a *app) parkedHead(p parked.Parked, m operate.ParkedData) {
	a.fields([][2]string{
		{"key", keyOf(p)}, {"state", operate.Waiting(p)}, {"topic", p.Topic},
		{"partition", strconv.Itoa(int(p.Partition))}, {"group", p.Group},
		{"consumer", p.Consumer}, {"due", a.when(p.Due)}, {"decided by", p.By}, {"reason", p.Why},
		{"class", m.Class}, {"description", m.Description}, {"attempts", count(m.Attempts)},
		{"first failed", a.when(m.FirstFailedAt)}, {"last failed", a.when(m.LastFailedAt)},
	}...)
}

// undecided says what can be done about a decision that was refused.
func undecided(seq int64, err error) error {
	for _, known := range []error{parked.ErrNotParked, parked.ErrNotFirst, parked.ErrDecided, parked.ErrNotHeld,
		apiclient.ErrChanged} {
		if errors.Is(err, known) {
			return none("SEQ %d: %w: redrive sequences says what waits for what", seq, err)
		}
	}
	return err
}

// decide writes down what a person decided about keys that wait.
func (a *app) decide(what parked.Decision, short, long string) *cobra.Command {
	var reason string
	var yes, all bool
	name := what.String()
	cmd := &cobra.Command{
		Use: name + " SEQ...", Short: short, Long: long,
		Example: fmt.Sprintf("  redrive sequences %s 1042 --reason \"INC-7: agreed with ann\"", name),
		Args:    arguments(1, letters.MaxLimit, "SEQs, as redrive sequences prints them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			seqs, err := seqsOf(args, asSequences)
			if err != nil {
				return err
			}
			d, err := a.sharedDesk(cmd.Context())
			if err != nil {
				return err
			}
			of := "the first message"
			if all {
				of = "all messages"
			}
			if err := a.confirm(yes, "%s %s of %s of %s?", name, of, several(len(seqs), "key"), a.owner()); err != nil {
				return err
			}
			return a.decideAll(cmd.Context(), d, seqs, what, reason, all)
		},
	}
	reasonFlag(cmd, &reason)
	if what == parked.Discard {
		cmd.Flags().BoolVar(&all, "all", false, "all messages of the key that wait now")
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// decideAll decides about one key after the other. One that is refused stops no other.
func (a *app) decideAll(ctx context.Context, d *desk, seqs []int64, what parked.Decision, reason string,
	all bool) error {
	var refused []error
	done := 0
	for _, seq := range seqs {
		var v operate.SequenceDecided
		body := operate.SequenceBody{ReasonBody: why(reason), All: all}
		if err := d.act(ctx, &v, body, "sequences", number(seq), what.String()); err != nil {
			if refused = append(refused, undecided(seq, err)); ctx.Err() != nil {
				break
			}
			continue
		}
		done++
		if err := a.answer(v, "SEQ %d: %s %s", seq, what, several(v.Messages, "message")); err != nil {
			return err
		}
	}
	if done > 0 && !a.json {
		a.screen.Note("the instance that has the partition carries it out within seconds: redrive sequences lists the key until then")
	}
	err := errors.Join(refused...)
	if done > 0 && err != nil {
		return partly("%w", err)
	}
	return err
}
