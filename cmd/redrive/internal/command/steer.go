package command

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// steering is a command that changes a campaign that exists.
type steering struct {
	name, args, short, long, example, question string
}

func (a *app) pause() *cobra.Command {
	return a.steer(steering{
		name: "pause", args: "ID", short: "Pause a campaign",
		long:    "pause stops a campaign. Workers finish the letters that they have in hand. resume lets it go on.",
		example: "  redrive pause 9f3a12bc --reason \"the downstream is slow\"",
	})
}

func (a *app) resume() *cobra.Command {
	return a.steer(steering{
		name: "resume", args: "ID", short: "Let a paused campaign go on",
		long:    "resume lets a paused campaign go on. If it had stopped itself, only what comes back from now on counts.",
		example: "  redrive resume 9f3a12bc --reason \"the fix is out\"",
	})
}

func (a *app) approve() *cobra.Command {
	return a.steer(steering{
		name: "approve", args: "ID", short: "Let a campaign begin that another person started",
		long:     "approve lets a campaign begin that waits for a second person. You must not be the one who started it.",
		example:  "  redrive approve 9f3a12bc --by bob --reason \"checked with the shop\"",
		question: "approve the redrive of",
	})
}

func (a *app) cancel() *cobra.Command {
	return a.steer(steering{
		name: "cancel", args: "ID", short: "Give a campaign up",
		long: "cancel ends a campaign for good. Letters that it has not redriven wait as before, and another campaign " +
			"can take them.",
		example:  "  redrive cancel 9f3a12bc --reason \"wrong cause\"",
		question: "cancel the redrive of",
	})
}

func (a *app) rate() *cobra.Command {
	return a.steer(steering{
		name: "rate", args: "ID RATE", short: "Change how many letters per second a campaign redrives",
		long:    "rate changes the rate of a campaign from the next letters on. 0 is no limit.",
		example: "  redrive rate 9f3a12bc 200 --reason \"the downstream keeps up\"",
	})
}

func (a *app) steer(s steering) *cobra.Command {
	var reason string
	var yes bool
	what := operate.SteeringOf(s.name)
	args := len(strings.Fields(s.args))
	cmd := &cobra.Command{
		Use: s.name + " " + s.args, Short: s.short, Long: s.long, Example: s.example,
		Args: arguments(args, args, s.args),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return errNoReason
			}
			rate := 0.0
			if what.Rated {
				var err error
				if rate, err = strconv.ParseFloat(args[1], 64); err != nil {
					return wrong("RATE is %q: want letters per second, such as 50", args[1])
				}
				if err := operate.CheckRate("RATE", rate); err != nil {
					return coded{err, exitWrong}
				}
			}
			d, err := a.campaignDesk(cmd.Context(), false, campaigns.Config{})
			if err != nil {
				return err
			}
			c, err := campaignOf(cmd.Context(), d, args[0])
			if err != nil {
				return err
			}
			if s.question != "" && !yes {
				if err := a.screen.Confirm("%s %s of %s?", s.question, several(c.Pending, "letter"),
					a.owner()); err != nil {
					return err
				}
			}
			c, err = d.Steer(cmd.Context(), a.person(reason), c.ID, what, rate)
			if err != nil {
				return err
			}
			if a.json {
				return a.screen.JSON(operate.DataOfCampaign(a.masked(c)))
			}
			a.screen.Line("campaign %s is %s", short(c.ID), c.State)
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record (required)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask; pause, resume and rate never do")
	return cmd
}
