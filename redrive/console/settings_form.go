package console

// settingsForm is the form of a campaign: its fields in their groups, with what was typed and what is wrong.
type settingsForm struct {
	Key                       string
	Care, More                []formField
	Patch, Set, Unset, Func   formField
	Reason                    formField
	FirstStage, Approval      bool
	HandleAgain               bool
	AgainWrong                string // why handlers cannot run again
	MoreOpen, EditOpen, Wrong bool
}

// form is the form with the settings. The browser goes to the first field that is wrong.
func (s *settings) form() settingsForm {
	f := settingsForm{Key: s.Key, FirstStage: s.FirstStage, Approval: s.Approval,
		HandleAgain: s.HandleAgain, AgainWrong: s.wrong["handle-again"]}
	typed := s.fields()
	field := func(name, label, hint, mode string) formField {
		one := formField{Name: name, Label: label, Value: *typed[name], Hint: hint, Mode: mode, Wrong: s.wrong[name]}
		one.First = one.Wrong != "" && !f.Wrong
		f.Wrong = f.Wrong || one.First
		return one
	}
	f.Care = []formField{
		field("rate", text("settings.rate"), text("rate.none"), "decimal"),
		field("canary", text("settings.canary"), "0", "numeric"),
		field("canary-wait", text("settings.canarywait"), "1m", ""),
		field("stop-at", text("settings.stopat"), "20", "decimal"),
		field("stop-after", text("settings.stopafter"), "50", "numeric"),
		field("max", text("settings.max"), text("settings.max.all"), "numeric"),
	}
	f.More = []formField{
		field("to", text("settings.to"), "", ""),
		field("not-before", text("settings.notbefore.name"), "2h", ""),
		field("resume-after", text("settings.resumeafter"), "5m", ""),
		field("concurrency", text("settings.concurrency"), "1", "numeric"),
	}
	f.Patch, f.Set = field("patch", text("settings.patch"), `{"currency":"EUR"}`, ""),
		field("set", text("settings.setkeys"), "tenant=blue", "")
	f.Unset, f.Func = field("unset", text("settings.unset"), "", ""), field("func", text("settings.func"), "", "")
	f.Reason = reasonField(s.Reason, s.wrong["reason"], text("act.reason.hint"))
	f.Reason.First = f.Reason.Wrong != "" && !f.Wrong
	f.Wrong = f.Wrong || f.Reason.First
	f.MoreOpen = s.To+s.NotBefore+s.ResumeAfter+s.Concurrency != "" || s.FirstStage || s.HandleAgain || s.Approval
	f.EditOpen = s.Patch+s.Set+s.Unset+s.Func != ""
	return f
}
