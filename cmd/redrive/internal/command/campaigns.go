package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// campaignTables begin the components of campaigns.
const campaignTables = "campaign"

// mostCampaigns is the greatest campaigns.List.Limit.
const mostCampaigns = 1000

// campaignOf finds a campaign by the first characters of its id.
func campaignOf(ctx context.Context, d *desk, begin string) (c operate.CampaignData, err error) {
	if v, err := d.Campaign(ctx, begin); err == nil || !errors.Is(err, campaigns.ErrNotFound) {
		return v.CampaignData, err
	}
	found, err := d.campaigns(ctx, url.Values{"begins": {begin}})
	switch {
	case err != nil:
		return c, err
	case len(found) == 0:
		return c, none("no campaign has the id %q: redrive campaigns lists them", begin)
	case len(found) > 1:
		return c, wrong("%d campaigns begin with %q: give more of the id", len(found), begin)
	}
	return found[0], nil
}

func (a *app) campaigns() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "campaigns [ID]",
		Short: "List campaigns, or show one with all that was done with it",
		Long: `campaigns lists the campaigns of the service, the newest first. SUCCEEDED counts redriven letters that are known to
have been handled, and AGAIN those that came back as dead letters. With an id, or its first characters, it shows one campaign and its record.`,
		Example: `  redrive campaigns
  redrive campaigns 9f3a12bc`,
		Args: arguments(0, 1, "the id of a campaign, or nothing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := within("--limit", limit, 1, mostCampaigns); err != nil {
				return err
			}
			d, err := a.campaignDesk(cmd.Context(), false, campaigns.Config{})
			if err != nil {
				return err
			}
			if len(args) == 1 {
				c, err := campaignOf(cmd.Context(), d, args[0])
				if err != nil {
					return err
				}
				return a.campaign(cmd.Context(), d, c.ID)
			}
			page, err := d.campaigns(cmd.Context(), url.Values{"limit": {number(limit)}})
			if err != nil {
				return err
			}
			return a.campaignTable(page)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "the largest number of campaigns")
	return cmd
}

func (a *app) campaignTable(page []operate.CampaignData) error {
	if len(page) == 0 {
		a.screen.Note("there is no campaign")
		return nil
	}
	return rows(a, page, []screen.Column{
		{Name: "ID", Style: screen.Blue}, {Name: "STATE"}, {Name: "LETTERS", Right: true, Style: screen.Bold},
		{Name: "REDRIVEN", Right: true}, {Name: "SUCCEEDED", Right: true, Drop: 3}, {Name: "AGAIN", Right: true, Drop: 2},
		{Name: "RATE", Right: true, Drop: 5}, {Name: "STARTED", Style: screen.Dim, Drop: 4}, {Name: "BY", Min: 6, Drop: 1},
		{Name: "REASON", Min: 16},
	}, func(c operate.CampaignData) []any {
		return []any{a.shortened(c.ID), screen.Span{Text: string(c.State), Style: styleOfState(c.State)}, c.Selected,
			c.Redriven, c.Succeeded, c.FailedAgain, rateOf(c.Rate), a.when(c.CreatedAt), c.Request.By, c.Request.Reason}
	})
}

// campaign prints one campaign and its record.
func (a *app) campaign(ctx context.Context, d *desk, id string) error {
	c, err := d.Campaign(ctx, id)
	if err != nil {
		return err
	}
	if a.json {
		return a.screen.JSON(c)
	}
	state := string(c.State)
	if c.Why != "" {
		state += ": " + c.Why
	}
	a.fields([][2]string{
		{"campaign", c.ID}, {"state", state}, {"started", a.when(c.CreatedAt) + " by " + c.Request.By},
		{"reason", c.Request.Reason}, {"approved by", c.ApprovedBy}, {"ended", a.when(c.EndedAt)},
		{"resumes", a.when(c.ResumeAt)}, {"to", c.Request.To}, {"rate", rateOf(c.Rate)}, {"edit", editOf(c.Request.Edit)},
		{"letters", fmt.Sprintf("%d, %d not done yet", c.Selected, c.Pending)}, {"redriven", redrivenOf(c.CampaignData)},
		{"quarantined", count(c.Quarantined)}, {"refused", count(c.Refused)}, {"failed", count(c.Failed)},
		{"gone", count(c.Gone)},
	}...)
	for _, note := range c.Notes {
		a.screen.Field("cause", short(note.Cause)+": "+note.Words())
	}
	for _, left := range c.LeftOut {
		a.screen.Field("left out", leftOut(left))
	}
	for _, b := range c.Behind {
		a.screen.Field("left behind", leftBehind(b))
	}
	a.screen.Head("record")
	for _, e := range c.Events {
		line := fmt.Sprintf("  %s  %s  %s  %s", a.when(e.At), e.Kind, e.By, e.Reason)
		if e.Details != "" {
			line += "  " + e.Details
		}
		a.screen.Line("%s", strings.TrimRight(line, " "))
	}
	return nil
}

func redrivenOf(c operate.CampaignData) string {
	return fmt.Sprintf("%d: %d succeeded, %d failed again, %d not heard of yet", c.Redriven, c.Succeeded, c.FailedAgain,
		c.NotHeard)
}

func leftBehind(b inside.Behind) string {
	line := several(b.Letters, "letter") + " " + b.Outcome
	if b.Why != "" {
		line += ": " + b.Why
	}
	return line
}

// leftOut says which letters a campaign does not take.
func leftOut(l campaigns.LeftOut) string {
	why, about := operate.LeftOutWords(l)
	switch {
	case l.Why == campaigns.InCampaign:
		about = short(about)
	case about != "":
		about = quoted(about)
	}
	return strings.TrimRight(several(l.Letters, "letter")+": "+why+" "+about, " ")
}

func editOf(e *campaigns.Edit) string {
	if e == nil {
		return ""
	}
	return inside.EditText(e)
}

func rateOf(rate float64) string {
	if rate == 0 {
		return ""
	}
	return fmt.Sprintf("%g/s", rate)
}

// short is enough of an id to choose it.
// shortened is an id in a table: on a terminal its first characters.
func (a *app) shortened(id string) string {
	if a.screen.Terminal() {
		return short(id)
	}
	return id
}

func short(id string) string { return id[:min(len(id), shortCause)] }

func styleOfState(s campaigns.State) screen.Style {
	switch s {
	case campaigns.Finished:
		return screen.Green
	case campaigns.Paused, campaigns.Approval:
		return screen.Amber
	case campaigns.Cancelled:
		return screen.Dim
	}
	return screen.Blue
}

// rounded is a time for people.
func rounded(d time.Duration) string {
	if d > 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// steering is a command that changes a campaign that exists.
type steering struct {
	name, args, short, long, example, question string
}

var steerings = []steering{
	{name: "pause", args: "ID", short: "Pause a campaign",
		long:    "pause stops a campaign. Workers finish the letters that they have in hand. resume lets it go on.",
		example: `redrive pause 9f3a12bc --reason "the downstream is slow"`},
	{name: "resume", args: "ID", short: "Let a paused campaign go on",
		long:    "resume lets a paused campaign go on. If it had stopped itself, only what comes back from now on counts.",
		example: `redrive resume 9f3a12bc --reason "the fix is out"`},
	{name: "cancel", args: "ID", short: "Give a campaign up", question: "cancel the redrive of",
		long: "cancel ends a campaign for good. Letters that it has not redriven wait as before, and another campaign " +
			"can take them.",
		example: `redrive cancel 9f3a12bc --reason "wrong cause"`},
	{name: "rate", args: "ID RATE", short: "Change how many letters per second a campaign redrives",
		long:    "rate changes the rate of a campaign from the next letters on. 0 is no limit.",
		example: `redrive rate 9f3a12bc 200 --reason "the downstream keeps up"`},
	{name: "approve", args: "ID", short: "Let a campaign begin that another person started", question: "approve the redrive of",
		long:    "approve lets a campaign begin that waits for a second person. You must not be the one who started it.",
		example: `redrive approve 9f3a12bc --by bob --reason "checked with the shop"`},
}

func (a *app) steer(s steering) *cobra.Command {
	var reason string
	var yes bool
	what := operate.SteeringOf(s.name)
	args := len(strings.Fields(s.args))
	cmd := &cobra.Command{
		Use: s.name + " " + s.args, Short: s.short, Long: s.long, Example: "  " + s.example,
		Args: arguments(args, args, s.args),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			if err := a.confirm(yes || s.question == "", "%s %s of %s?", s.question, several(c.Pending, "letter"),
				a.owner()); err != nil {
				return err
			}
			var body any = why(reason)
			if what.Rated {
				body = operate.RateBody{ReasonBody: why(reason), Rate: &rate}
			}
			if err := d.act(cmd.Context(), &c, body, "campaigns", c.ID, what.Name); err != nil {
				return err
			}
			return a.answer(c, "campaign %s is %s", short(c.ID), c.State)
		},
	}
	reasonFlag(cmd, &reason)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask; pause, resume and rate never do")
	return cmd
}
