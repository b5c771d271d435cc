package console

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
