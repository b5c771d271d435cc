package console

import "github.com/watermill-spillway/spillway/internal/operate"

// settingLabels are the labels of the fields.
var settingLabels = map[string]string{
	"rate":         "Letters a second",
	"canary":       "Canary: letters to redrive first",
	"canary-wait":  "Wait for what becomes of the canary",
	"stop-at":      "Pause if more than so many percent fail again",
	"stop-after":   "Letters from which that counts",
	"max":          "At most so many letters",
	"to":           "To this topic, instead of the one each came from",
	"not-before":   "Begin later",
	"resume-after": "Resume by itself after the target refused",
	"concurrency":  "Letters that a worker publishes at the same time",
	"patch":        "JSON merge patch {…}, or JSON patch […]",
	"set":          "Metadata to set, a line each: key=value",
	"unset":        "Metadata keys to remove, a line each",
	"func":         "Function that the service's workers know",
	"first-stage":  "To the first retry stage of their handler",
	"handle-again": "Run handlers again whose outputs could not be published; what they wrote is written twice",
}

// settingsForm is the form of a campaign: its fields in their groups, with what was typed and what is wrong.
type settingsForm struct {
	Key                       string
	Why                       string // the rate and the canary are as they are
	Free, Careful             bool   // the form offers to be without them, or to have the careful ones again
	Care, More                []formField
	Patch, Set, Unset, Func   formField
	Reason                    formField
	FirstStage, Approval      bool
	HandleAgain               bool
	AgainWrong                string // why handlers cannot run again
	MoreOpen, EditOpen, Wrong bool
}

// form is the form with the settings, for n letters. The browser goes to the first field that is wrong.
func (s *campaignForm) form(n operate.Number) settingsForm {
	f := settingsForm{Key: s.Key, FirstStage: s.FirstStage, Approval: s.Approval,
		HandleAgain: s.HandleAgain, AgainWrong: s.wrong["handle-again"], Why: s.care(n), Free: s.Rate+s.Canary != ""}
	rate, canary := carefully(n)
	f.Careful = s.Rate != rate || s.Canary != canary
	typed := s.fields()
	field := func(name, hint, mode string) formField {
		one := formField{Name: name, Label: settingLabels[name], Value: *typed[name], Hint: hint, Mode: mode,
			Wrong: s.wrong[name]}
		one.First = one.Wrong != "" && !f.Wrong
		f.Wrong = f.Wrong || one.First
		return one
	}
	f.Care = []formField{
		field("rate", "no limit", "decimal"),
		field("canary", "0", "numeric"),
		field("stop-at", "20", "decimal"),
		field("max", "all", "numeric"),
	}
	f.More = []formField{
		field("canary-wait", "1m", ""),
		field("stop-after", "50", "numeric"),
		field("to", "", ""),
		field("not-before", "2h", ""),
		field("resume-after", "5m", ""),
		field("concurrency", "1", "numeric"),
	}
	f.Patch, f.Set = field("patch", `{"currency":"EUR"}`, ""),
		field("set", "tenant=blue", "")
	f.Unset, f.Func = field("unset", "", ""), field("func", "", "")
	f.Reason = reasonField(s.Reason, s.wrong["reason"], reasonHint)
	f.Reason.First = f.Reason.Wrong != "" && !f.Wrong
	f.Wrong = f.Wrong || f.Reason.First
	f.MoreOpen = s.CanaryWait+s.StopAfter+s.To+s.NotBefore+s.ResumeAfter+s.Concurrency != "" || s.FirstStage || s.HandleAgain || s.Approval
	f.EditOpen = s.Patch+s.Set+s.Unset+s.Func != ""
	return f
}

// formField is a field of a form, with what was typed, and what is wrong with it in the words of the form.
type formField struct {
	Name, Label, Value, Hint string
	Mode                     string // which keys a telephone offers
	Wrong                    string
	First                    bool // of the fields that are wrong: the browser goes there
	Required                 bool
	Most                     int // characters
}

// reasonField is the field for a reason.
func reasonField(value, wrong, hint string) formField {
	return formField{Name: "reason", Label: "Reason, for the record", Value: value, Hint: hint, Wrong: wrong,
		First:    wrong != "",
		Required: true, Most: 1000}
}
