package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/internal/order/sequence"
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
			d, err := a.sequenceDesk(cmd.Context())
			if err != nil {
				return err
			}
			if !yes {
				of := "the first message"
				if all {
					of = "all messages"
				}
				if err := a.screen.Confirm("%s %s of %s of %s?", name, of, several(len(seqs), "key"),
					a.owner()); err != nil {
					return err
				}
			}
			return a.decideAll(cmd.Context(), d, seqs, what, reason, all)
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
func (a *app) decideAll(ctx context.Context, d *desk, seqs []int64, what sequence.Decision, reason string,
	all bool) error {
	var refused []error
	done := 0
	for _, seq := range seqs {
		n, err := d.DecideSequence(ctx, a.person(reason), seq, what, all)
		if err != nil {
			if refused = append(refused, undecided(seq, err)); ctx.Err() != nil {
				break
			}
			continue
		}
		if done++; a.json {
			if err := a.screen.JSON(decided{seq, what.String(), n}); err != nil {
				return err
			}
			continue
		}
		a.screen.Line("SEQ %d: %s %s", seq, what, several(n, "message"))
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
