package console

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// fieldSeen is the field with the number of letters that the person saw at the dry run.
	fieldSeen = "seen"
	// maxEditForm is how many bytes a form with an edit may have: 256 KiB of text, each byte as three.
	maxEditForm = 1 << 20
)

// redriving is the page between a selection and its campaign.
type redriving struct {
	Settings settingsForm
	Hidden   []field // the selection
	Plan     *planView
	NoPlan   string         // why there is no dry run
	Problem  string         // why the campaign did not start
	Detail   string         // of the problem
	Number   operate.Number // of letters that the campaign would take, if that is known
	Seen     int            // letters that the selection has, with those that are left out
	UpTo     bool           // letters of Number may be left out
	Exact    string         // the address of the page that counts
	Action   string
	Letters  string // the address of the selection as a list
	Edits    bool   // the request edits
	Narrowed bool   // the selection had letters that do not wait, which are left out
	Again    bool   // it has letters that were redriven or discarded before
}

// redriveForm shows what a campaign of the selection would do, and asks how it is to be done.
func (c *console) redriveForm(r *request) (answer, error) {
	s, err := c.toRedrive(r, false)
	if err != nil {
		return answer{}, err
	}
	n := c.chosenWithin(r, s, c.counting)
	return c.redrivePage(r, s, n, newSettings(n), problem{})
}

// redrive starts the campaign, or shows the dry run of other settings.
func (c *console) redrive(r *request) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	s, err := c.toRedrive(r, true)
	if err != nil {
		return answer{}, err
	}
	set := settingsOf(form)
	page := func(p problem) (answer, error) { return c.redrivePage(r, s, c.chosenWithin(r, s, c.counting), set, p) }
	if form.Get("do") != "start" {
		return page(problem{})
	}
	request := set.request(s.Campaign(), r.Now)
	reason := set.Get("reason")
	request.ID, request.Reason = set.Get("key"), reason
	if wrong := wrongReason(reason); wrong != "" {
		set.wrong["reason"] = wrong
	}
	if len(set.wrong) > 0 {
		return page(problem{status: http.StatusBadRequest, text: say(fieldsWrong, len(set.wrong))})
	}
	seen, _ := strconv.Atoi(form.Get(fieldSeen))
	started, late, err := c.desk.Begin(r.HTTP.Context(), r.who(reason), operate.Beginning{Request: request, Seen: &seen,
		Counting: c.patience(r, c.counting)})
	more := (*operate.MoreMatch)(nil)
	switch {
	case errors.As(err, &more):
		return page(problem{status: http.StatusConflict, text: say(moreMatch, more.Now)})
	case errors.Is(err, campaigns.ErrNoLetters):
		set.Set("key", watermill.NewUUID()) // the campaign of the old key is over
		return page(problem{status: http.StatusConflict, text: "No letter of the selection can " +
			"be redriven now.",
			leftOut: c.leftOut(r, started.LeftOut)})
	case errors.Is(err, inside.ErrKeyReused): // the form was sent before, and was changed since
		set.Set("key", watermill.NewUUID())
		return page(problem{status: http.StatusConflict, text: say("This form started campaign "+
			"%s before, with other settings. Nothing was changed. Start again for another campaign.", started.ID)})
	case set.about(err):
		return page(problem{status: http.StatusBadRequest, text: say(fieldsWrong, len(set.wrong))})
	case err != nil:
		return page(c.problemOf(r, err))
	case late != nil: // it has begun: workers go on with its selection
		c.log(r, late)
	}
	return answer{to: r.link("campaigns/"+started.ID, nil)}, nil
}

// toRedrive is the selection of a request, with letters that may be redriven: those that wait, unless the person chose
// other states.
func (c *console) toRedrive(r *request, posted bool) (s operate.Selection, err error) {
	q := r.Query
	if posted {
		q = r.HTTP.PostForm
	}
	if s, err = r.selection(q); err != nil || len(s.Filter.Statuses) == 0 {
		return s, err
	}
	if slices.Equal(s.Filter.Statuses, letters.Statuses()) {
		s.Filter.Statuses, s.Narrowed = []letters.Status{letters.StatusWaiting}, true
		return s, nil
	}
	var some bool
	if s, some = s.Only(operate.Redrivable); !some {
		return s, badInput("Discarded and erased letters are not redriven. Restore discarded letters first: the record of " +
			"the discard has a link.")
	}
	return s, nil
}

// selection is the selection of values, for what the person may see.
func (r *request) selection(q map[string][]string) (operate.Selection, error) {
	s, err := operate.ParseSelection(q, r.Now)
	if err == nil && len(s.Seqs) == 0 {
		_, err = r.filter(q)
	}
	return s, err
}

// redrivePage shows the form with what was typed, and n letters, if that is known. A dry run that fails leaves the form
// as it is.
func (c *console) redrivePage(r *request, s operate.Selection, n operate.Number, set campaignForm, p problem) (answer, error) {
	view := redriving{
		Hidden: hiddenFields(s.Values()), Problem: p.text, Detail: p.detail, Seen: s.Number, UpTo: true,
		Number: n, Action: r.link("redrive", nil), Letters: r.link("letters", s.Values()),
		Exact: r.exactLink("redrive", s.Values()), Narrowed: s.Narrowed,
		Again: slices.ContainsFunc(s.Filter.Statuses, func(status letters.Status) bool {
			return status != letters.StatusWaiting
		}),
	}
	if view.Number.Known() {
		view.Seen = view.Number.N()
	}
	if most := set.most(); most > 0 && (!view.Number.Known() || most < view.Number.N()) {
		view.Number = operate.Exactly(most)
	}
	if p.status != http.StatusServiceUnavailable {
		was := maps.Clone(set.wrong)
		request := set.request(s.Campaign(), r.Now)
		maps.Copy(set.wrong, was)
		view.Edits = request.Edit != nil
		if err := c.dryRun(r, request, set, &view); err != nil {
			failed := c.problemOf(r, err)
			view.NoPlan, view.Detail = failed.text, failed.detail
			if p.status == 0 && failed.status == http.StatusServiceUnavailable {
				p.status = failed.status
			}
		}
		if p.status == 0 && len(set.wrong) > 0 {
			p.status = http.StatusBadRequest
		}
	}
	if len(p.leftOut) > 0 && view.Plan == nil {
		view.Plan = &planView{LeftOut: p.leftOut}
	}
	view.Settings = set.form()
	return answer{status: p.status, page: "redrive", title: "Redrive", view: view}, nil
}

// dryRun plans a campaign of at most planned letters. Settings that are wrong have none.
func (c *console) dryRun(r *request, request campaigns.Request, set campaignForm, view *redriving) error {
	if wrong := len(set.wrong); wrong > 1 || wrong == 1 && set.wrong["reason"] == "" {
		view.NoPlan = settingsWrong
		return nil
	}
	plan, part, err := c.desk.Plan(r.HTTP.Context(), r.who(""), request, operate.Planned)
	if set.about(err) {
		view.NoPlan = settingsWrong
		return nil
	}
	if err != nil {
		return err
	}
	view.Plan = c.planView(r, plan, part)
	if view.UpTo = part; !part {
		view.Number = operate.Exactly(plan.Letters)
	}
	return nil
}

// planView is what a campaign would do.
type planView struct {
	Letters, Quarantine   int
	Nothing               bool // no letter of the selection can be redriven, and none is left out for a reason
	Part                  bool // there are more letters than the dry run reads
	Causes, Ages, Targets []bar
	LeftOut               []leftOutLine
	Sample                []sampleLine
	Takes                 string
	NeedsApproval         bool
	Refused               int // letters of the sample that the edit does not fit
	Differences           bool
}

// bar is a row of a histogram.
type bar struct {
	Name, More string // a value of a message, and others of its cause
	Plain      bool   // Name is the console's own text
	Letters    int
	All        int
}

// leftOutLine says why letters are not taken.
type leftOutLine struct {
	Letters int
	Why     string
	Name    string // the topic, or the campaign
	Link    string // to the campaign
}

// sampleLine is a letter of the sample.
type sampleLine struct {
	Link, ID, Topic, Handler, Description string
	FirstFailed                           time.Time
	Difference                            *operate.Difference
}

func (c *console) planView(r *request, p operate.DryRun, part bool) *planView {
	v := &planView{Letters: p.Letters, Quarantine: p.Quarantine, Part: part, NeedsApproval: p.NeedsApproval,
		LeftOut: c.leftOut(r, p.LeftOut)}
	v.Nothing = p.Letters == 0 && len(p.LeftOut) == 0
	if p.Takes > 0 && !part {
		v.Takes = age(p.Takes)
	}
	for _, one := range p.Causes {
		v.Causes = append(v.Causes,
			bar{Name: one.Reason, More: strings.TrimSpace(one.Handler + " " + one.Description), Letters: one.Letters,
				All: p.Letters})
	}
	for _, one := range p.Ages {
		name := "longer ago"
		if one.UpTo > 0 {
			name = say("up to %s ago", age(time.Duration(one.UpTo)))
		}
		v.Ages = append(v.Ages, bar{Name: name, Plain: true, Letters: one.Letters, All: p.Letters})
	}
	for _, one := range p.Targets {
		v.Targets = append(v.Targets, bar{Name: one.Topic, Letters: one.Letters, All: p.Letters})
	}
	for _, one := range p.Sample {
		line := sampleLine{
			Link: r.link("letters/"+id(one.Seq), nil), ID: one.ID, Topic: one.Topic, Handler: one.Handler,
			Description: one.Description, FirstFailed: one.FirstFailed, Difference: operate.DifferenceOf(one.Edited, c.desk.Masks),
		}
		if d := line.Difference; d != nil {
			v.Differences = true
			if d.Refused != "" {
				v.Refused++
			}
		}
		v.Sample = append(v.Sample, line)
	}
	return v
}

// leftOut says which letters a campaign does not take.
func (c *console) leftOut(r *request, out []campaigns.LeftOut) (lines []leftOutLine) {
	for _, one := range out {
		why, about := operate.LeftOutWords(one)
		line := leftOutLine{Letters: one.Letters, Why: why, Name: about}
		if one.Why == campaigns.InCampaign && about != "" {
			line.Link = r.link("campaigns/"+about, nil)
		}
		lines = append(lines, line)
	}
	return lines
}
