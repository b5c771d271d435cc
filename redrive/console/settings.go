package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// settings are the fields of the form of a campaign, as they were typed. Empty fields have the defaults of campaigns.Request.
type settings struct {
	Key                                                  string // the id of the campaign that the form starts: sent twice it starts one
	Reason                                               string
	Rate, Max, Canary, CanaryWait, StopAt, StopAfter, To string
	NotBefore, ResumeAfter, Concurrency                  string
	FirstStage, Approval                                 bool
	Patch, Set, Unset, Func                              string
}

func newSettings() settings { return settings{Key: watermill.NewUUID()} }

// fields are the settings by the names of their fields.
func (s *settings) fields() map[string]*string {
	return map[string]*string{
		"key": &s.Key, "reason": &s.Reason, "rate": &s.Rate, "max": &s.Max, "canary": &s.Canary, "canary-wait": &s.CanaryWait,
		"stop-at": &s.StopAt, "stop-after": &s.StopAfter, "to": &s.To, "not-before": &s.NotBefore, "resume-after": &s.ResumeAfter,
		"concurrency": &s.Concurrency, "patch": &s.Patch, "set": &s.Set, "unset": &s.Unset, "func": &s.Func,
	}
}

// settingsFields are the names of all fields of settings.
func settingsFields() []string {
	return append(slices.Sorted(maps.Keys((&settings{}).fields())), "first-stage", "approval")
}

func settingsOf(form url.Values) (s settings) {
	for name, to := range s.fields() {
		*to = strings.TrimSpace(form.Get(name))
	}
	s.FirstStage, s.Approval = form.Get("first-stage") != "", form.Get("approval") != ""
	return s
}

// request is the campaign that the settings ask for. The selection is in r.
func (s *settings) request(r campaigns.Request, now time.Time) (campaigns.Request, problem) {
	r.To, r.FirstStage, r.Approval = s.To, s.FirstStage, s.Approval
	wrong := ""
	number := func(field, typed string, to *int) {
		n, err := strconv.Atoi(ungrouped(typed))
		if typed != "" && (err != nil || n < 0) && wrong == "" {
			wrong = text("settings.number", text(field), typed)
		}
		*to = n
	}
	fraction := func(field, typed string, to *float64) {
		n, err := strconv.ParseFloat(ungrouped(strings.TrimSuffix(typed, "%")), 64)
		if typed != "" && (err != nil || !(n >= 0 && n <= campaigns.MaxRate)) && wrong == "" {
			wrong = text("settings.number", text(field), typed)
		}
		*to = n
	}
	duration := func(field, typed string, to *time.Duration) {
		d, err := time.ParseDuration(typed)
		if typed != "" && (err != nil || d < 0) && wrong == "" {
			wrong = text("settings.duration", text(field), typed)
		}
		*to = d
	}
	fraction("settings.rate", s.Rate, &r.Rate)
	number("settings.max", s.Max, &r.Max)
	number("settings.canary", s.Canary, &r.Canary)
	duration("settings.canarywait", s.CanaryWait, &r.CanaryWait)
	fraction("settings.stopat", s.StopAt, &r.StopAt)
	r.StopAt /= 100
	number("settings.stopafter", s.StopAfter, &r.StopAfter)
	duration("settings.resumeafter", s.ResumeAfter, &r.ResumeAfter)
	number("settings.concurrency", s.Concurrency, &r.Concurrency)
	if s.NotBefore != "" {
		if in, err := time.ParseDuration(s.NotBefore); err == nil && in > 0 {
			r.NotBefore = now.Add(in)
		} else if at, err := moment(s.NotBefore, now); err == nil && at.After(now) {
			r.NotBefore = at
		} else if wrong == "" {
			wrong = text("settings.notbefore", s.NotBefore)
		}
	}
	if why := s.edit(&r); wrong == "" {
		wrong = why
	}
	if wrong != "" {
		return r, problem{status: http.StatusBadRequest, text: wrong}
	}
	return r, problem{}
}

// most is how many letters the person allows at most, or 0.
func (s *settings) most() int {
	n, _ := strconv.Atoi(ungrouped(s.Max))
	return n
}

// edit sets the edit of all letters, if there is one.
func (s *settings) edit(r *campaigns.Request) (wrong string) {
	e := campaigns.Edit{Func: s.Func, Unset: filled(lines(s.Unset))}
	for _, line := range filled(lines(s.Set)) {
		key, value, found := strings.Cut(line, "=")
		if !found || key == "" {
			return text("settings.set", line)
		}
		if e.Set == nil {
			e.Set = map[string]string{}
		}
		e.Set[key] = value
	}
	if patch := json.RawMessage(s.Patch); len(patch) > 0 {
		switch {
		case !json.Valid(patch) || patch[0] != '{' && patch[0] != '[':
			return text("settings.patch.wrong")
		case patch[0] == '[':
			e.Patch = patch
		default:
			e.Merge = patch
		}
	}
	if e.Func == "" && len(e.Unset)+len(e.Set)+len(e.Patch)+len(e.Merge) == 0 {
		return ""
	}
	if err := e.Validate(); err != nil {
		return text("settings.edit.wrong", err.Error())
	}
	r.Edit = &e
	return ""
}

var grouping = regexp.MustCompile(`^[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?$`)

// ungrouped is a number without the commas of its groups of three digits, as pages show them. Another comma stays, and is an error: in
// 1,5 it is the decimal sign of many countries.
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
