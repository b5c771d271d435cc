package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

const (
	lookEvery = 200 * time.Millisecond
	// patientFor is how long watch waits for a first letter before it says that there may be no worker.
	patientFor = 10 * time.Second
	// askEvery is lookEvery for an API.
	askEvery = time.Second
	// unavailableFor is how long watch goes on while the database or the API does not answer: the campaign does.
	unavailableFor = 2 * time.Minute
)

func (a *app) watch() *cobra.Command {
	return &cobra.Command{
		Use:   "watch ID",
		Short: "Watch a campaign until it ends or pauses",
		Long: `watch shows how far a campaign is: a bar on a terminal, a line for each change in a pipe, an object for each change with
--json. Ctrl-C ends the watching and nothing else: the workers go on. The exit code is 0 if the campaign finished and all its
letters were redriven, and 5 if it paused, was cancelled, or left letters behind.`,
		Example: `  redrive watch 9f3a12bc
  redrive watch 9f3a12bc --json | jq .redriven`,
		Args: arguments(1, 1, "the id of a campaign"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.campaignDesk(cmd.Context(), false, campaigns.Config{})
			if err != nil {
				return err
			}
			c, err := campaignOf(cmd.Context(), d, args[0])
			if err != nil {
				return err
			}
			return a.follow(cmd.Context(), d, c)
		},
	}
}

// follow watches a campaign.
func (a *app) follow(ctx context.Context, d *desk, c operate.CampaignData) error {
	progress := a.screen.Progress()
	begun, redriven, said := time.Now(), c.Redriven, false
	last := ""
	var unavailable time.Time // since when nothing answers
	every, who := lookEvery, "the database"
	if a.settings.url != "" {
		every, who = askEvery, "the API"
	}
	for {
		if a.json {
			if now := fmt.Sprint(c.State, operate.Outcomes(c.Campaign), c.Rate); now != last {
				if err := a.screen.JSON(c); err != nil {
					return err
				}
				last = now
			}
		} else {
			progress.Show(float64(c.Selected-c.Pending)/float64(max(c.Selected, 1)), "%s", standing(c))
		}
		if c.State.Ended() || c.State == campaigns.Paused || c.State == campaigns.Approval ||
			c.State == campaigns.Scheduled {
			progress.End()
			if c.State == campaigns.Finished && c.Refused+c.Failed+c.Gone > 0 && !a.json {
				v, err := d.Campaign(ctx, c.ID)
				if err != nil {
					return err
				}
				for _, b := range v.Behind {
					a.screen.Line("left behind: %s", leftBehind(b))
				}
			}
			return a.outcome(c)
		}
		if c.State == campaigns.Running && !said && c.Redriven == redriven && c.Pending == c.Selected &&
			time.Since(begun) > patientFor {
			said = true
			progress.End()
			a.screen.Note("no worker has taken a letter yet: %s", a.whyNot(ctx, d, c))
		}
		select {
		case <-ctx.Done():
			progress.End()
			a.screen.Note("you watch no more; the campaign goes on: redrive watch %s, redrive pause %s", short(c.ID),
				short(c.ID))
			return errDetached
		case <-time.After(every):
		}
		next, err := d.Campaign(ctx, c.ID)
		switch {
		case err == nil:
			if !unavailable.IsZero() {
				a.screen.Note("%s answers again", who)
			}
			c, unavailable = next.CampaignData, time.Time{}
		case ctx.Err() != nil:
		case apiclient.Lasting(err), !unavailable.IsZero() && time.Since(unavailable) > unavailableFor:
			progress.End()
			return fmt.Errorf("%w; redrive watch %s goes on watching: the campaign does not need it", err, short(c.ID))
		case unavailable.IsZero():
			unavailable = time.Now()
			progress.End()
			a.screen.Note("%s does not answer; watching goes on when it is back: %v", who, err)
		}
	}
}

// whyNot says why no worker works on a campaign, as far as the record knows.
func (a *app) whyNot(ctx context.Context, d *desk, c operate.CampaignData) string {
	v, err := d.Campaign(ctx, c.ID)
	if err != nil {
		return "the record does not answer: " + err.Error()
	}
	for _, e := range slices.Backward(v.Events) {
		switch e.Kind {
		case inside.CampaignLeft:
			return fmt.Sprintf("%s; %s: give a worker what it lacks, or cancel: redrive cancel %s", e.Details, e.Reason,
				short(c.ID))
		case inside.CampaignWaits:
			return e.Reason
		}
	}
	return "a service works on campaigns if it runs their plugin, and redrive work does it from here"
}

// errDetached ends a watch that Ctrl-C ended, after the line that says so.
var errDetached = coded{errors.New("detached"), exitInterrupted}

// standing is a campaign in a line.
func standing(c operate.CampaignData) string {
	line := fmt.Sprintf("%s %s %d/%d", short(c.ID), c.State, c.Selected-c.Pending, c.Selected)
	if c.State == campaigns.Running && c.Rate > 0 {
		line += " at " + rateOf(c.Rate)
	}
	if c.FailedAgain > 0 {
		line += fmt.Sprintf(", %d failed again", c.FailedAgain)
	}
	if c.Succeeded > 0 {
		line += fmt.Sprintf(", %d succeeded", c.Succeeded)
	}
	if c.State == campaigns.Running && c.Remaining > 0 {
		line += ", " + rounded(time.Duration(c.Remaining)) + " left"
	}
	return line
}

// outcome says how a campaign stands that needs no watching now.
func (a *app) outcome(c operate.CampaignData) error {
	behind := c.Quarantined + c.Refused + c.Failed
	switch {
	case c.State == campaigns.Finished && behind == 0:
		if !a.json {
			a.screen.Line("campaign %s is finished: redriven %s", short(c.ID), redrivenOf(c))
		}
		return nil
	case c.State == campaigns.Finished:
		return partly("campaign %s is finished: redriven %s; left behind: %d quarantined, %d refused, %d not accepted",
			short(c.ID), redrivenOf(c), c.Quarantined, c.Refused, c.Failed)
	case c.State == campaigns.Paused:
		return partly("campaign %s is paused: %s; redriven %s, %d not begun; redrive resume or redrive cancel",
			short(c.ID),
			c.Why, redrivenOf(c), c.Pending)
	case c.State == campaigns.Approval:
		return partly("campaign %s waits for a second person: redrive approve %s", short(c.ID), short(c.ID))
	case c.State == campaigns.Scheduled:
		a.screen.Note("campaign %s begins at %s", short(c.ID), operate.Stamp(c.Request.NotBefore))
		return nil
	}
	return partly("campaign %s is cancelled: %s; redriven %s", short(c.ID), c.Why, redrivenOf(c))
}
