package console

import (
	"errors"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// campaignForm has the fields of the form of a campaign, as they were typed. Empty fields have the defaults of
// campaigns.Request.
type campaignForm struct {
	// the id of the campaign that the form starts: sent twice it starts one
	Key                                                  string
	Reason                                               string
	Rate, Max, Canary, CanaryWait, StopAt, StopAfter, To string
	NotBefore, ResumeAfter, Concurrency                  string
	FirstStage, HandleAgain, Approval                    bool
	Patch, Set, Unset, Func                              string

	wrong map[string]string // what is wrong with fields, by their names
}

// fields are the settings by the names of their fields.
func (s *campaignForm) fields() map[string]*string {
	return map[string]*string{
		"key": &s.Key, "reason": &s.Reason, "rate": &s.Rate, "max": &s.Max, "canary": &s.Canary,
		"canary-wait": &s.CanaryWait,
		"stop-at":     &s.StopAt, "stop-after": &s.StopAfter, "to": &s.To, "not-before": &s.NotBefore,
		"resume-after": &s.ResumeAfter, "concurrency": &s.Concurrency, "patch": &s.Patch, "set": &s.Set, "unset": &s.Unset,
		"func": &s.Func,
	}
}

// settingsFields are the names of all fields of settings.
func settingsFields() []string {
	return append(slices.Sorted(maps.Keys((&campaignForm{}).fields())), "first-stage", "handle-again", "approval")
}

func settingsOf(form url.Values) (s campaignForm) {
	for name, to := range s.fields() {
		*to = strings.TrimSpace(form.Get(name))
	}
	s.FirstStage, s.HandleAgain, s.Approval = form.Get("first-stage") != "", form.Get("handle-again") != "",
		form.Get("approval") != ""
	return s
}

// request is the campaign that the settings ask for. The selection is in r. What is wrong with fields is kept with
// them.
func (s *campaignForm) request(r campaigns.Request, now time.Time) campaigns.Request {
	s.wrong = map[string]string{}
	r.To, r.FirstStage, r.HandleAgain, r.Approval = s.To, s.FirstStage, s.HandleAgain, s.Approval
	number := func(field, typed string, to *int) {
		n, err := strconv.Atoi(ungrouped(typed))
		if typed != "" && (err != nil || n < 0) {
			s.wrong[field] = say("%q is no whole number from 0 on. Write it as 1500 or 1,500.", typed)
		}
		*to = max(n, 0)
	}
	duration := func(field, typed string, to *time.Duration) {
		d, err := time.ParseDuration(typed)
		if typed != "" && (err != nil || d < 0) {
			s.wrong[field] = say("%q is no time. Use a time such as 90s, 5m or 2h.", typed)
		}
		*to = max(d, 0)
	}
	var wrong string
	if r.Rate, wrong = rateOf(s.Rate); wrong != "" {
		s.wrong["rate"] = wrong
	}
	number("max", s.Max, &r.Max)
	number("canary", s.Canary, &r.Canary)
	duration("canary-wait", s.CanaryWait, &r.CanaryWait)
	percent, isNumber := readNumber(strings.TrimSpace(strings.TrimSuffix(s.StopAt, "%")))
	switch {
	case s.StopAt == "":
	case !isNumber:
		s.wrong["stop-at"] = say(noNumber, s.StopAt)
	case percent > 100:
		s.wrong["stop-at"] = "A share has at most 100 percent. 100 never pauses."
	}
	r.StopAt = percent / 100
	number("stop-after", s.StopAfter, &r.StopAfter)
	duration("resume-after", s.ResumeAfter, &r.ResumeAfter)
	number("concurrency", s.Concurrency, &r.Concurrency)
	var err error
	if r.NotBefore, err = operate.Begin("not-before", s.NotBefore, now); err != nil {
		s.wrong["not-before"] = "This " + err.(*operate.Wrong).Why
	}
	s.edit(&r)
	for _, of := range operate.CheckSettings(&r) {
		if s.wrong[of.Field] == "" {
			s.wrong[of.Field] = "This " + of.Why + "."
		}
	}
	return r
}

// rateOf reads a rate. Nothing is no limit.
func rateOf(typed string) (rate float64, wrong string) {
	if typed == "" {
		return 0, ""
	}
	rate, ok := readNumber(typed)
	if !ok {
		return 0, say(noNumber, typed)
	}
	if of := (*operate.Wrong)(nil); errors.As(operate.CheckRate("rate", rate), &of) {
		return 0, "This " + of.Why + "."
	}
	return rate, ""
}

// readNumber reads a number from 0 on.
func readNumber(typed string) (n float64, ok bool) {
	n, err := strconv.ParseFloat(ungrouped(typed), 64)
	return n, err == nil && n >= 0 && !math.IsInf(n, 0)
}

// about gives an error of a request to the field that it is about, if it is about one that a person typed into.
func (s *campaignForm) about(err error) bool {
	if !errors.Is(err, campaigns.ErrRequest) {
		return false
	}
	switch said := err.Error(); {
	case s.To != "" && strings.Contains(said, "Request.To is "):
		s.wrong["to"] = "The campaigns of this service may not publish to this topic. Leave it empty, or name a topic " +
			"of campaigns.Config.Allow."
	case s.HandleAgain && strings.Contains(said, "Request.HandleAgain is "):
		s.wrong["handle-again"] = "The keys of the idempotent receiver are in another database. Leave this out if the " +
			"handlers have no receiver."
	default:
		return false
	}
	return true
}

// most is how many letters the person allows at most, or 0.
func (s *campaignForm) most() int {
	n, _ := strconv.Atoi(ungrouped(s.Max))
	return n
}

// edit sets the edit of all letters, if there is one.
func (s *campaignForm) edit(r *campaigns.Request) {
	e, err := operate.ParseEdit(operate.EditFields{Patch: s.Patch, Set: lines(s.Set), Unset: lines(s.Unset), Func: s.Func})
	if wrong := (*operate.Wrong)(nil); errors.As(err, &wrong) {
		field := wrong.Field
		if field == "edit" {
			field = "patch"
		}
		s.wrong[field] = "This " + wrong.Why
		return
	}
	r.Edit = e
}

var grouping = regexp.MustCompile(`^[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?$`)

// ungrouped is a number without the commas of its groups of three digits, as pages show them. Another comma stays, and
// is an error: in 1,5 it is the decimal sign of many countries.
func ungrouped(typed string) string {
	if grouping.MatchString(typed) {
		return strings.ReplaceAll(typed, ",", "")
	}
	return typed
}

// lines are the lines of a text area.
func lines(typed string) []string {
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(typed), "\n")
}
