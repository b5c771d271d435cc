package console

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// campaignsAtOnce is how many campaigns a page of the list has.
const campaignsAtOnce = 50

// campaignList is the list of campaigns, the newest first.
type campaignList struct {
	States    []option
	Campaigns []campaignLine
	Next      string
	Action    string
	Policies  policiesView
}

func (c *console) campaignList(r *request) (answer, error) {
	list := campaigns.List{Limit: campaignsAtOnce + 1}
	view := campaignList{Action: r.link("campaigns", nil)}
	for _, state := range campaigns.States {
		checked := slices.Contains(r.Query["state"], string(state))
		if checked {
			list.States = append(list.States, state)
		}
		view.States = append(view.States, option{"state", string(state), operate.StateWords(state), checked})
	}
	var err error
	if list.Before, err = operate.Moment("before", r.Query.Get("before"), r.Now); err != nil {
		return answer{}, err
	}
	list.BeforeID = r.Query.Get("before-id")
	found, err := c.desk.Campaigns.List(r.HTTP.Context(), list)
	if err != nil {
		return answer{}, err
	}
	if len(found) > campaignsAtOnce {
		found = found[:campaignsAtOnce]
		last := found[len(found)-1]
		q := map[string][]string{"state": r.Query["state"], "before": {last.CreatedAt.Format(time.RFC3339Nano)},
			"before-id": {last.ID}}
		view.Next = r.link("campaigns", q)
	}
	for _, one := range found {
		view.Campaigns = append(view.Campaigns, c.lineOf(r, one))
	}
	if list.Before.IsZero() {
		if view.Policies, err = c.policies(r); err != nil {
			return answer{}, err
		}
	}
	return answer{page: "campaigns", title: "Campaigns", view: view}, nil
}

// lineOf is a campaign in a line, as the person may see it.
func (c *console) lineOf(r *request, one campaigns.Campaign) campaignLine {
	return campaignLine{CampaignData: c.desk.Shown(r.who(""), one), Link: r.link("campaigns/"+one.ID, nil),
		Words: operate.StateWords(one.State), Done: one.Selected - one.Pending}
}

// campaignView is one campaign, with its record, the newest entry first.
type campaignView struct {
	operate.CampaignRecord
	Words     string
	Counts    []operate.OutcomeData
	Standing  string // the verdict in a sentence
	Left      string // time
	Speed     string
	Settings  []settingLine
	Edited    string
	Out       []leftOutLine
	Again     []bar  // what came back, by cause
	AgainLink string // to the letters that came back
	AgainSlow bool   // they could not be counted in time
	Selection string // the letters that were chosen
	Chosen    []string
	Actions   []action
	Own       bool // the person started it, and so cannot approve it
	Through   int  // letters that the campaign is through with
	Done      bool // nothing of it will change
	Here      string
	Audit     string
}

// settingLine is a setting of the request. Its value came with the form, or with messages.
type settingLine struct{ Name, Value string }

func (c *console) campaign(r *request) (answer, error) {
	one, err := c.desk.Campaigns.Get(r.HTTP.Context(), r.HTTP.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	view, err := c.campaignView(r, one)
	return answer{page: "campaign", title: "Campaign", view: view}, err
}

func (c *console) campaignView(r *request, one campaigns.Campaign) (campaignView, error) {
	record, err := c.desk.CampaignOf(r.HTTP.Context(), r.who(""), one)
	slices.Reverse(record.Events)
	request := c.desk.Campaign(one).Request
	v := campaignView{
		CampaignRecord: record, Words: operate.StateWords(one.State), Through: one.Selected - one.Pending,
		Out: c.leftOut(r, record.LeftOut), Counts: operate.Outcomes(one), Standing: operate.Standing(one.State),
		Settings: settingsOfRequest(request), Own: r.who("").Began(one), Speed: "no limit",
		Here: r.link("campaigns/"+one.ID, nil), Audit: r.link("audit", map[string][]string{"redrive-id": {one.ID}}),
	}
	// no time passes while it stands
	if one.Remaining > 0 && slices.Contains([]campaigns.State{campaigns.Running, campaigns.Canary}, one.State) {
		v.Left = age(one.Remaining)
	}
	if one.Rate > 0 {
		v.Speed = say("%s letters a second", strconv.FormatFloat(one.Rate, 'g', -1, 64))
	}
	if record.Request.Edit != nil {
		v.Edited = inside.EditText(record.Request.Edit)
	}
	v.Selection, v.Chosen = c.chosenBy(r, one), r.inWords(request)
	v.Done = one.State.Ended() && one.NotHeard == 0
	v.Actions = c.actions(r, one)
	if err == nil && one.FailedAgain > 0 {
		err = c.cameBack(r, one, &v)
	}
	return v, err
}

// cameBack says what came back dead, by cause.
func (c *console) cameBack(r *request, one campaigns.Campaign, v *campaignView) error {
	v.AgainLink = r.link("letters", operate.FilterValues(operate.CameBackFrom(one)))
	if !one.State.Ended() && one.State != campaigns.Paused && one.State != campaigns.Canary {
		return nil // the numbers move: the link has them
	}
	groups, slow, err := c.desk.CameBack(r.HTTP.Context(), one, c.counting)
	v.AgainSlow = slow
	for _, g := range groups {
		v.Again = append(v.Again,
			bar{Name: g.Reason, More: strings.TrimSpace(g.Handler + " " + g.Description), Letters: g.Count,
				All: one.FailedAgain})
	}
	return err
}

// chosenBy is the address of the list of letters that a campaign chose from.
func (c *console) chosenBy(r *request, one campaigns.Campaign) string {
	f := one.Request.Filter
	if len(one.Request.Seqs) > 0 || r.who("").MaySearch(f, r.privacy) != nil {
		return ""
	}
	f.Statuses = letters.Statuses()
	return r.link("letters", operate.FilterValues(f))
}

// inWords is the selection of a campaign, a condition each.
func (r *request) inWords(of campaigns.Request) (conditions []string) {
	if n := len(of.Seqs); n > 0 {
		return []string{say("%s letter, chosen one by one|%s letters, chosen one by one", n)}
	}
	form := r.filterForm("letters", operate.FilterValues(of.Filter))
	for _, one := range form.Chips {
		if !r.offers(one.Name) {
			one.Value = "hidden"
		}
		conditions = append(conditions, one.Label+": "+one.Value)
	}
	if form.MoreChips > 0 {
		conditions = append(conditions, say("%s more", form.MoreChips))
	}
	if len(conditions) == 0 {
		conditions = append(conditions, "all letters")
	}
	if of.Filter.MaxSeq > 0 {
		conditions = append(conditions, say("up to letter %s", int(of.Filter.MaxSeq)))
	}
	return conditions
}

// settingsOfRequest are what a request says beside its selection and its edit.
func settingsOfRequest(r campaigns.Request) (lines []settingLine) {
	add := func(name, value string, set bool) {
		if set {
			lines = append(lines, settingLine{settingOf(name).label, value})
		}
	}
	add("to", r.To, r.To != "")
	add("first-stage", "yes", r.FirstStage)
	add("handle-again", "yes", r.HandleAgain)
	add("max", grouped(r.Max), r.Max > 0)
	add("canary", grouped(r.Canary), r.Canary > 0)
	add("canary-wait", age(r.CanaryWait), r.Canary > 0)
	add("stop-at", strconv.FormatFloat(100*r.StopAt, 'g', 4, 64), r.StopAt < 1)
	add("stop-after", grouped(r.StopAfter), r.StopAt < 1)
	add("resume-after", age(r.ResumeAfter), r.ResumeAfter > 0)
	add("concurrency", grouped(r.Concurrency), r.Concurrency > 1)
	return lines
}

// action is something that can be done with a campaign.
type action struct {
	operate.Steering
	Link string
}

// actions are what the person may do with a campaign in the state that it has.
func (c *console) actions(r *request, one campaigns.Campaign) (all []action) {
	for _, s := range r.who("").Can(one) {
		all = append(all, actionOf(r, s, one.ID))
	}
	return all
}

func actionOf(r *request, s operate.Steering, campaign string) action {
	return action{s, r.link("campaigns/"+campaign+"/"+s.Name, nil)}
}
