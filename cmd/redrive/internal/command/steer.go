package command

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// steering is a command that changes a campaign that exists.
type steering struct {
	use, short, long, example, question string
	do                                  change
	parse                               func(string) (change, error) // of a second argument: it returns what to do
}

// change is a method of campaigns.Campaigns.
type change func(all *campaigns.Campaigns, ctx context.Context, id string, act campaigns.Act) (campaigns.Campaign,
	error)

func (a *app) pause() *cobra.Command {
	return a.steer(steering{
		use: "pause ID", short: "Pause a campaign",
		long:    "pause stops a campaign. Workers finish the letters that they have in hand. resume lets it go on.",
		example: "  redrive pause 9f3a12bc --reason \"the downstream is slow\"",
		do:      (*campaigns.Campaigns).Pause,
	})
}

func (a *app) resume() *cobra.Command {
	return a.steer(steering{
		use: "resume ID", short: "Let a paused campaign go on",
		long:    "resume lets a paused campaign go on. If it had stopped itself, only what comes back from now on counts.",
		example: "  redrive resume 9f3a12bc --reason \"the fix is out\"",
		do:      (*campaigns.Campaigns).Resume,
	})
}

func (a *app) approve() *cobra.Command {
	return a.steer(steering{
		use: "approve ID", short: "Let a campaign begin that another person started",
		long:     "approve lets a campaign begin that waits for a second person. You must not be the one who started it.",
		example:  "  redrive approve 9f3a12bc --by bob --reason \"checked with the shop\"",
		question: "approve the redrive of",
		do:       (*campaigns.Campaigns).Approve,
	})
}

func (a *app) cancel() *cobra.Command {
	return a.steer(steering{
		use: "cancel ID", short: "Give a campaign up",
		long: "cancel ends a campaign for good. Letters that it has not redriven wait as before, and another campaign " +
			"can take them.",
		example:  "  redrive cancel 9f3a12bc --reason \"wrong cause\"",
		question: "cancel the redrive of",
		do:       (*campaigns.Campaigns).Cancel,
	})
}

func (a *app) rate() *cobra.Command {
	return a.steer(steering{
		use: "rate ID RATE", short: "Change how many letters per second a campaign redrives",
		long:    "rate changes the rate of a campaign from the next letters on. 0 is no limit.",
		example: "  redrive rate 9f3a12bc 200 --reason \"the downstream keeps up\"",
		parse: func(arg string) (change, error) {
			rate, err := strconv.ParseFloat(arg, 64)
			if err != nil {
				return nil, wrong("RATE is %q: want letters per second, such as 50", arg)
			}
			if err := speed("RATE", rate); err != nil {
				return nil, err
			}
			return func(all *campaigns.Campaigns, ctx context.Context, id string, act campaigns.Act) (campaigns.Campaign,
				error) {
				return all.SetRate(ctx, id, rate, act)
			}, nil
		},
	})
}

func (a *app) steer(s steering) *cobra.Command {
	var reason string
	var yes bool
	args := 1
	if s.parse != nil {
		args = 2
	}
	cmd := &cobra.Command{
		Use: s.use, Short: s.short, Long: s.long, Example: s.example,
		Args: arguments(args, args, s.use),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return wrong("--reason is empty: say why, for those who read the record later")
			}
			do := s.do
			if s.parse != nil {
				var err error
				if do, err = s.parse(args[1]); err != nil {
					return err
				}
			}
			all, _, err := a.openCampaigns(cmd.Context(), false, campaigns.Config{})
			if err != nil {
				return err
			}
			c, err := campaignOf(cmd.Context(), all, args[0])
			if err != nil {
				return err
			}
			if s.question != "" && !yes {
				if err := a.screen.Confirm("%s %s of %s?", s.question, several(c.Pending, "letter"), a.owner()); err != nil {
					return err
				}
			}
			c, err = do(all, cmd.Context(), c.ID, campaigns.Act{By: a.settings.by, Reason: reason})
			if err != nil {
				return err
			}
			if a.json {
				return a.screen.JSON(a.maskedCampaign(c))
			}
			a.screen.Line("campaign %s is %s", short(c.ID), c.State)
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record (required)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask; pause, resume and rate never do")
	return cmd
}
