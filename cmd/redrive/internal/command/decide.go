package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/internal/sequence"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// decided is a decision as a program reads it.
type decided struct {
	Seq      int64  `json:"seq"`
	Decided  string `json:"decided"`
	Messages int    `json:"messages"`
}

// decide writes down what a person decided about keys that wait.
func (a *app) decide(what sequence.Decision, short, long string) *cobra.Command {
	var reason string
	var yes, all bool
	name := what.String()
	cmd := &cobra.Command{
		Use: name + " SEQ...", Short: short, Long: long,
		Example: fmt.Sprintf("  redrive sequences %s 1042 --reason \"INC-7: agreed with ann\"", name),
		Args:    arguments(1, letters.MaxLimit, "SEQs, as redrive sequences prints them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return errNoReason
			}
			var seqs []int64
			for _, arg := range args {
				seq, err := seqOf(arg)
				if err != nil {
					return err
				}
				seqs = append(seqs, seq)
			}
			db, err := a.parkedIn(cmd.Context())
			if err != nil {
				return err
			}
			store, err := a.emptyStore(cmd.Context())
			if err != nil {
				return err
			}
			if !yes {
				of := "the first message"
				if all {
					of = "all messages"
				}
				if err := a.screen.Confirm("%s %s of %s of %s?", name, of, several(len(seqs), "key"), a.owner()); err != nil {
					return err
				}
			}
			return a.decideAll(cmd.Context(), db, store, seqs, sequence.Deciding{What: what, By: a.settings.by, Why: reason, All: all})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record (required)")
	if what == sequence.Discard {
		cmd.Flags().BoolVar(&all, "all", false, "all messages of the key that wait now")
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// decideAll decides about one key after the other. One that is refused stops no other.
func (a *app) decideAll(ctx context.Context, db *sql.DB, store *letters.Store, seqs []int64, d sequence.Deciding) error {
	d.Record = func(tx *sql.Tx, id string, first sequence.Parked, n int) error {
		return store.Inside().RecordSequence(ctx, tx, id, letters.Act{By: d.By, Reason: d.Why,
			Detail: fmt.Sprintf("%s %s of %s/%d from %d on", d.What, several(n, "message"), first.Topic, first.Partition, first.Position)})
	}
	var refused []error
	done := 0
	for _, seq := range seqs {
		n, err := sequence.Decide(ctx, db, a.settings.service, seq, d)
		if err != nil {
			if refused = append(refused, undecided(seq, err)); ctx.Err() != nil {
				break
			}
			continue
		}
		if done++; a.json {
			if err := a.screen.JSON(decided{seq, d.What.String(), n}); err != nil {
				return err
			}
			continue
		}
		a.screen.Line("SEQ %d: %s %s", seq, d.What, several(n, "message"))
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
