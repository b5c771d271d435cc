package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// startFlags say how a campaign redrives.
type startFlags struct {
	editFlags
	request                  campaigns.Request
	notBefore                string
	allow                    []string
	dryRun, detach, yes, all bool
}

func (a *app) redrive() *cobra.Command {
	var chosen choice
	var s startFlags
	cmd := &cobra.Command{
		Use: "redrive [SEQ...]", Aliases: []string{"start"},
		Short: "Bring letters back: start a campaign",
		Long: `redrive starts a campaign, which brings the chosen letters back to the topics that they came from. It writes the selection
down first: what arrives later is not part of it. The instances of the service work on it if they run the plugin of package
campaigns; redrive work does it from here. The campaign lives in the database: this terminal may go.

A campaign stops itself when more than --stop-at of its letters fail again, after --stop-after. With --canary it redrives some
letters first, and waits for what becomes of them. --dry-run only says what would be done.`,
		Example: `  redrive redrive --cause 9f3a12bc --dry-run
  redrive redrive --cause 9f3a12bc --rate 50 --canary 10 --reason "INC-7: the fix is out"
  redrive redrive 1042 1043 --reason "try two" --yes
  redrive redrive --cause 9f3a12bc --edit '{"currency":"EUR"}' --set tenant=blue --reason "INC-7"
  redrive redrive --topic orders --to orders.replay --max 100 --reason "INC-7" --yes --detach`,
		Args: arguments(0, campaigns.MaxSeqs, "SEQs, or flags that choose letters"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.startCampaign(cmd.Context(), &chosen, &s, args)
		},
	}
	f, r := cmd.Flags(), &s.request
	f.SortFlags = false
	f.StringVar(&r.Reason, "reason", "", "why, for the record (required, but for --dry-run)")
	f.BoolVar(&s.dryRun, "dry-run", false, "say what would be done, and do nothing")
	f.Float64Var(&r.Rate, "rate", 0, "letters per second; 0 is no limit")
	f.IntVar(&r.Max, "max", 0, "the largest number of letters; 0 takes all")
	f.IntVar(&r.Canary, "canary", 0, "letters to redrive first, before the others")
	f.DurationVar(&r.CanaryWait, "canary-wait", campaigns.DefaultCanaryWait,
		"how long to wait for what becomes of them")
	f.StringVar(&r.To, "to", "", "topic for all letters instead of the one that each came from")
	f.BoolVar(&r.HandleAgain, "handle-again", false,
		"let handlers run again whose outputs could not be published; what "+
			"they wrote is written twice")
	f.BoolVar(&r.FirstStage, "first-stage", false, "send letters to the first retry stage of their handler")
	s.editFlags.flags(f)
	f.Float64Var(&r.StopAt, "stop-at", campaigns.DefaultStopAt,
		"share of letters that fail again at which the campaign "+
			"stops itself; 1 is never")
	f.IntVar(&r.StopAfter, "stop-after", campaigns.DefaultStopAfter, "letters from which --stop-at counts")
	f.DurationVar(&r.ResumeAfter, "resume-after", 0,
		"resume by itself after the target refused; 0 waits for redrive resume")
	f.IntVar(&r.Concurrency, "concurrency", 1, "letters that a worker publishes at the same time; 1 keeps their order")
	f.StringVar(&s.notBefore, "not-before", "", "begin in 2h, or at 2026-03-01T22:00:00Z")
	f.BoolVar(&r.Approval, "approval", false, "wait until a second person approves")
	f.StringArrayVar(&s.allow, "allow", nil, "topic that letters may go to; workers have a list of their own in any case")
	f.BoolVar(&s.all, "all", false, "every letter that waits")
	f.BoolVar(&s.detach, "detach", false, "do not watch")
	f.BoolVarP(&s.yes, "yes", "y", false, "do not ask")
	chosen.flags(cmd, a.process.In, true)
	return cmd
}

// ask makes the request of the flags.
func (s *startFlags) ask(ctx context.Context, d *desk, chosen *choice,
	args []string) (r campaigns.Request, err error) {
	r = s.request
	for _, arg := range args {
		l, _, err := find(ctx, d, arg)
		if err != nil {
			return r, err
		}
		if l.Status == string(letters.StatusDiscarded) && !chosen.has("status") {
			return r, none("SEQ %d is discarded: discarded letters are not redriven; redrive restore %d lets it wait again",
				l.Seq, l.Seq)
		}
		r.Seqs = append(r.Seqs, l.Seq)
	}
	chosen.seqs = r.Seqs
	if chosen.empty() && !s.all {
		return r, wrong("nothing chooses letters: name SEQs, add --cause or another flag, or --all for every letter that waits")
	}
	if err = chosen.notMeant(ctx, d, r.Reason); err != nil {
		return r, err
	}
	if r.Filter, err = chosen.filter(ctx, d); err != nil {
		return r, err
	}
	if r.Edit, err = s.editFlags.read(); err != nil {
		return r, err
	}
	if r.NotBefore, err = operate.Begin("not-before", s.notBefore, time.Now()); err != nil {
		return r, flagged(err)
	}
	if r.Canary == 0 {
		r.CanaryWait = 0
	}
	return r, nil
}

func (a *app) startCampaign(ctx context.Context, chosen *choice, s *startFlags, args []string) error {
	if s.request.Reason == "" && !s.dryRun {
		return errNoReason
	}
	if err := s.check(chosen, args); err != nil {
		return err
	}
	if a.settings.url != "" && len(s.allow) > 0 {
		return wrong("--allow is for a database: an API has a list of the topics that letters may go to; leave it out")
	}
	d, err := a.campaignDesk(ctx, true, campaigns.Config{Allow: s.allow})
	if err != nil {
		return err
	}
	r, err := s.ask(ctx, d, chosen, args)
	if err != nil {
		return err
	}
	var plan operate.PlanData
	if s.dryRun || !s.yes {
		if plan, err = d.Plan(ctx, r); err != nil {
			return err
		}
	}
	if plan.Part {
		a.screen.Note("the server looked at the first %s: there may be more", several(plan.Letters, "letter"))
	}
	if s.dryRun {
		return a.plan(plan)
	}
	if !s.yes {
		for _, left := range plan.LeftOut {
			a.screen.Note("left out: %s", leftOut(left))
		}
		if plan.Letters == 0 {
			return none("no letter would be redriven: redrive redrive --dry-run says why")
		}
		if err := a.screen.Confirm("redrive %s to %s%s?", several(plan.Letters, "letter"), targets(plan), atRate(r.Rate)); err != nil {
			return err
		}
	}
	var c operate.CampaignData
	if err := d.act(ctx, &c, startOf(r), "campaigns"); err != nil {
		return err
	}
	for _, left := range c.LeftOut {
		if s.yes { // nothing has said so before
			a.screen.Note("left out: %s", leftOut(left))
		}
	}
	if s.detach {
		return a.answer(c, "campaign %s is %s: %s", c.ID, c.State, several(c.Selected, "letter"))
	}
	a.screen.Note("campaign %s began; Ctrl-C leaves it running", short(c.ID))
	return a.follow(ctx, d, c)
}

func targets(p operate.PlanData) string {
	var names []string
	for i, target := range p.Targets {
		if i == 3 {
			names = append(names, several(len(p.Targets)-i, "other topic"))
			break
		}
		names = append(names, target.Topic)
	}
	return strings.Join(names, ", ")
}

// plan prints what a campaign would do.
func (a *app) plan(p operate.PlanData) error {
	if a.json {
		for i := range p.Sample {
			p.Sample[i].Edited = p.Sample[i].Edited.Masked(a.privacy)
		}
		return a.screen.JSON(p)
	}
	line := "would redrive " + several(p.Letters, "letter")
	if p.Takes > 0 {
		line += ", in " + rounded(time.Duration(p.Takes))
	}
	a.screen.Styled(screen.Bold, "%s", line)
	if p.Quarantine > 0 {
		a.screen.Line("would quarantine %d of them, which failed again too often", p.Quarantine)
	}
	for _, left := range p.LeftOut {
		a.screen.Line("would leave out %s", leftOut(left))
	}
	if p.NeedsApproval {
		a.screen.Line("would wait until a second person approves")
	}
	if p.Letters == 0 {
		return none("nothing would be redriven")
	}
	a.targetsAndCauses(p.Letters, p.Targets, p.Causes)
	a.histogram("first failed", p.Letters, len(p.Ages), func(i int) (string, int) {
		if p.Ages[i].UpTo == 0 {
			return "earlier", p.Ages[i].Letters
		}
		return "up to " + p.Ages[i].UpTo.String() + " ago", p.Ages[i].Letters
	})
	a.screen.Head("sample")
	t := &screen.Table{Columns: []screen.Column{
		{Name: "SEQ", Right: true}, {Name: "FIRST FAILED", Style: screen.Dim, Drop: 1}, {Name: "TOPIC", Min: 8},
		{Name: "HANDLER", Min: 8, Drop: 2}, {Name: "ID", Min: 36},
		{Name: "DESCRIPTION", Min: 10},
	}}
	for _, l := range p.Sample {
		t.Row(l.Seq, a.when(l.FirstFailed), l.Topic, l.Handler, l.ID, l.Description)
	}
	a.screen.Table(t)
	for _, l := range p.Sample {
		if l.Edited != nil {
			a.screen.Head(fmt.Sprintf("edit of SEQ %d", l.Seq))
			a.diff(l.Edited)
		}
	}
	return nil
}

// targetsAndCauses prints letters by where they go to, and by their cause.
func (a *app) targetsAndCauses(letters int, targets []inside.TopicCount, causes []inside.PlannedCause) {
	a.histogram("to", letters, len(targets), func(i int) (string, int) { return targets[i].Topic, targets[i].Letters })
	a.histogram("cause", letters, len(causes), func(i int) (string, int) {
		c := causes[i]
		return strings.TrimSpace(c.Handler + " " + c.Reason + " " + c.Description), c.Letters
	})
}

// histogram prints counts with bars.
func (a *app) histogram(name string, all, n int, at func(i int) (string, int)) {
	const most, length = 10, 20
	a.screen.Head(name)
	t := &screen.Table{Columns: []screen.Column{{Name: "LETTERS", Right: true}, {Name: "", Style: screen.Blue, Drop: 1},
		{Name: strings.ToUpper(name), Min: 20}}}
	rest := 0
	for i := range n {
		label, count := at(i)
		if i >= most {
			rest += count
			continue
		}
		t.Row(count, strings.Repeat("█", max(1, count*length/max(all, 1))), label)
	}
	if rest > 0 {
		t.Row(rest, "", "others")
	}
	a.screen.Table(t)
}

// editFlags say how messages change on their way.
type editFlags struct {
	edit, function string
	set, unset     []string
}

func (e *editFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&e.edit, "edit", "", "JSON merge patch {…} or JSON patch […], or @FILE with one")
	f.StringArrayVar(&e.set, "set", nil, "metadata key=value to set")
	f.StringArrayVar(&e.unset, "unset", nil, "metadata key to remove")
	f.StringVar(&e.function, "edit-func", "", "function that the service's workers know")
}

// read returns the edit, or nil if there is none.
func (e *editFlags) read() (*campaigns.Edit, error) {
	if e.edit == "" && e.function == "" && len(e.set)+len(e.unset) == 0 {
		return nil, nil
	}
	patch := e.edit
	if path, ok := strings.CutPrefix(e.edit, "@"); ok {
		read, err := os.ReadFile(path)
		if err != nil {
			return nil, wrong("--edit: %w", err)
		}
		patch = string(read)
	}
	edit, err := operate.ParseEdit(operate.EditFields{Patch: patch, Set: e.set, Unset: e.unset, Func: e.function})
	return edit, flagged(err)
}
