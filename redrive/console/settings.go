package console

import (
	"errors"
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

// setting is a field of the form of a campaign. Its group says where it stands.
type setting struct{ name, label, hint, mode, group string }

var settings = []setting{
	{"rate", "Letters a second", "no limit", "decimal", "care"},
	{"canary", "Canary: letters to redrive first", "0", "numeric", "care"},
	{"stop-at", "Pause if more than so many percent fail again", "20", "decimal", "care"},
	{"max", "At most so many letters", "all", "numeric", "care"},
	{"canary-wait", "Wait for what becomes of the canary", "1m", "", "more"},
	{"stop-after", "Letters from which that counts", "50", "numeric", "more"},
	{"to", "To this topic, instead of the one each came from", "", "", "more"},
	{"not-before", "Begin later", "2h", "", "more"},
	{"resume-after", "Resume by itself after the target refused", "5m", "", "more"},
	{"concurrency", "Letters that a worker publishes at the same time", "1", "numeric", "more"},
	{"first-stage", "To the first retry stage of their handler", "", "", "flag"},
	{"handle-again", "Run handlers again whose outputs could not be published; what they wrote is written twice", "", "", "flag"},
	{"approval", "Wait until a second person approves", "", "", "flag"},
	{"patch", "JSON merge patch {…}, or JSON patch […]", `{"currency":"EUR"}`, "", "edit"},
	{"set", "Metadata to set, a line each: key=value", "tenant=blue", "", "edit"},
	{"unset", "Metadata keys to remove, a line each", "", "", "edit"},
	{"func", "Function that the service's workers know", "", "", "edit"},
}

// settingOf is the field of a name.
func settingOf(name string) setting {
	return settings[slices.IndexFunc(settings, func(s setting) bool { return s.name == name })]
}

// field is the field with what was typed, and what is wrong with it.
func (s setting) field(typed, wrong string) formField {
	return formField{Name: s.name, Label: s.label, Hint: s.hint, Mode: s.mode, Value: typed, Wrong: wrong}
}

// campaignForm has the fields of the form of a campaign as they were typed, and what is wrong with them, by their names.
// Empty fields have the defaults of campaigns.Request. Its key is the id of the campaign: sent twice it starts one.
type campaignForm struct {
	url.Values
	wrong map[string]string
}

// settingsFields are the names of all fields of settings.
func settingsFields() []string {
	names := []string{"key", "reason"}
	for _, s := range settings {
		names = append(names, s.name)
	}
	return names
}

func settingsOf(form url.Values) campaignForm {
	s := campaignForm{url.Values{}, map[string]string{}}
	for _, name := range settingsFields() {
		s.Set(name, strings.TrimSpace(form.Get(name)))
	}
	return s
}

// settingsForm is the form of a campaign: its fields in their groups, with what was typed and what is wrong.
type settingsForm struct {
	Key                string
	Groups             map[string][]formField
	Flags              []option
	FlagWrong          string // why handlers cannot run again
	Reason             formField
	MoreOpen, EditOpen bool
}

// form is the form with the settings. The browser goes to the first field that is wrong.
func (s campaignForm) form() settingsForm {
	f := settingsForm{Key: s.Get("key"), Groups: map[string][]formField{}, FlagWrong: s.wrong["handle-again"],
		Reason: reasonField(s.Get("reason"), s.wrong["reason"], reasonHint)}
	first := true
	for _, of := range settings {
		typed := s.Get(of.name)
		f.MoreOpen = f.MoreOpen || typed != "" && (of.group == "more" || of.group == "flag")
		f.EditOpen = f.EditOpen || typed != "" && of.group == "edit"
		if of.group == "flag" {
			f.Flags = append(f.Flags, option{of.name, "1", of.label, typed != ""})
			continue
		}
		one := of.field(typed, s.wrong[of.name])
		one.First = first && one.Wrong != ""
		first = first && one.Wrong == ""
		f.Groups[of.group] = append(f.Groups[of.group], one)
	}
	f.Reason.First = first && f.Reason.Wrong != ""
	return f
}

// request is the campaign that the settings ask for. The selection is in r. What is wrong with fields is kept with
// them.
func (s campaignForm) request(r campaigns.Request, now time.Time) campaigns.Request {
	clear(s.wrong)
	r.To, r.FirstStage, r.HandleAgain, r.Approval = s.Get("to"), s.Get("first-stage") != "", s.Get("handle-again") != "",
		s.Get("approval") != ""
	number := func(field string, to *int) {
		typed := s.Get(field)
		n, err := strconv.Atoi(ungrouped(typed))
		if typed != "" && (err != nil || n < 0) {
			s.wrong[field] = say("%q is no whole number from 0 on. Write it as 1500 or 1,500.", typed)
		}
		*to = max(n, 0)
	}
	duration := func(field string, to *time.Duration) {
		typed := s.Get(field)
		d, err := time.ParseDuration(typed)
		if typed != "" && (err != nil || d < 0) {
			s.wrong[field] = say("%q is no time. Use a time such as 90s, 5m or 2h.", typed)
		}
		*to = max(d, 0)
	}
	var wrong string
	if r.Rate, wrong = rateOf(s.Get("rate")); wrong != "" {
		s.wrong["rate"] = wrong
	}
	number("max", &r.Max)
	number("canary", &r.Canary)
	number("stop-after", &r.StopAfter)
	number("concurrency", &r.Concurrency)
	duration("canary-wait", &r.CanaryWait)
	duration("resume-after", &r.ResumeAfter)
	percent, isNumber := readNumber(strings.TrimSpace(strings.TrimSuffix(s.Get("stop-at"), "%")))
	switch {
	case s.Get("stop-at") == "":
	case !isNumber:
		s.wrong["stop-at"] = say(noNumber, s.Get("stop-at"))
	case percent > 100:
		s.wrong["stop-at"] = "A share has at most 100 percent. 100 never pauses."
	}
	r.StopAt = percent / 100
	var err error
	if r.NotBefore, err = operate.Begin("not-before", s.Get("not-before"), now); err != nil {
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
func (s campaignForm) about(err error) bool {
	if !errors.Is(err, campaigns.ErrRequest) {
		return false
	}
	switch said := err.Error(); {
	case s.Get("to") != "" && strings.Contains(said, "Request.To is "):
		s.wrong["to"] = "The campaigns of this service may not publish to this topic. Leave it empty, or name a topic " +
			"of campaigns.Config.Allow."
	case s.Get("handle-again") != "" && strings.Contains(said, "Request.HandleAgain is "):
		s.wrong["handle-again"] = "The keys of the idempotent receiver are in another database. Leave this out if the " +
			"handlers have no receiver."
	default:
		return false
	}
	return true
}

// most is how many letters the person allows at most, or 0.
func (s campaignForm) most() int {
	n, _ := strconv.Atoi(ungrouped(s.Get("max")))
	return n
}

// edit sets the edit of all letters, if there is one.
func (s campaignForm) edit(r *campaigns.Request) {
	e, err := operate.ParseEdit(operate.EditFields{Patch: s.Get("patch"), Set: lines(s.Get("set")),
		Unset: lines(s.Get("unset")), Func: s.Get("func")})
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
