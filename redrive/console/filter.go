package console

import (
	"maps"
	"net/url"
	"slices"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// filterForm is the form of a filter, with what the person typed.
type filterForm struct {
	Action            string
	Often, Seldom     []field
	Statuses, Classes []option
	Flags             []option
	Chips             []chip
	MoreChips         int // that are not shown
	Clear             string
	Keep              []field // fields of the page that are no filter
}

// field is a field with its values. One without a value has an empty one, so that there is a box to type into.
type field struct {
	Name, Label, Hint string
	Values            []string
}

// chip is one condition that is set, and the address of the page without it.
type chip struct{ Name, Label, Value, Without string }

// mostChips is how many conditions stand above a list. The form has all of them.
const mostChips = 50

// option is a box to check.
type option struct {
	Name, Value, Label string
	Checked            bool
}

var (
	oftenFields  = []string{"topic", "handler", "failure-reason", "text", "since", "until"}
	seldomFields = []string{"cause", "id", "type", "stack", "not-topic", "dead-letter-topic", "redrive-id", "seal-key",
		"metadata", "payload"}
	flagFields = []string{"no-origin", "leased", "unsealed"}
	lookFields = []string{"metadata", "payload", "text"} // for a person who may look into letters
)

// filterForm is the form of the filter in q. It keeps the named fields, which are no filter.
func (r *request) filterForm(action string, q url.Values, keep ...string) filterForm {
	form := filterForm{Action: r.link(action, nil), Clear: r.link(action, nil)}
	fields := func(names []string) (some []field) {
		for _, name := range names {
			if !r.offers(name) {
				continue
			}
			known := operate.FieldOf(name)
			one := field{Name: name, Label: known.Label, Hint: known.Hint, Values: operate.Filled(q[name])}
			if len(one.Values) == 0 {
				one.Values = []string{""}
			}
			some = append(some, one)
		}
		return some
	}
	form.Often, form.Seldom = fields(oftenFields), fields(seldomFields)
	for _, status := range append(letters.Statuses(), operate.All) {
		form.Statuses = append(form.Statuses,
			option{"status", string(status), operate.StatusWords(status), slices.Contains(q["status"], string(status))})
	}
	for _, class := range []classify.Class{classify.ClassPermanent, classify.ClassInvalid, classify.ClassTransient,
		classify.ClassUnknown} {
		form.Classes = append(form.Classes,
			option{"class", class.String(), class.String(), slices.Contains(q["class"], class.String())})
	}
	for _, name := range flagFields {
		form.Flags = append(form.Flags, option{name, "1", operate.FieldOf(name).Label, q.Get(name) != ""})
	}
	for _, name := range filterFields {
		for _, value := range operate.Filled(q[name]) {
			if len(form.Chips) == mostChips { // each has an address with all the others
				form.MoreChips++
				continue
			}
			form.Chips = append(form.Chips, chip{name, operate.FieldOf(name).Label, value, r.link(action, without(q, name,
				value))})
		}
	}
	for _, name := range keep {
		if values := operate.Filled(q[name]); len(values) > 0 {
			form.Keep = append(form.Keep, field{Name: name, Values: values})
		}
	}
	return form
}

// offers reports whether the person may search by a field of the form, and see what others searched for by it.
func (r *request) offers(name string) bool {
	return (!slices.Contains(lookFields, name) || r.Person.Right >= operate.Look) &&
		(name != "payload" || r.Person.Right >= operate.Act || !r.masksPayloads())
}

// without is a query without one value, and without the place in a list.
func without(q url.Values, name, value string) url.Values {
	rest := url.Values{}
	for other, values := range q {
		for _, one := range operate.Filled(values) {
			if other != "after" && (other != name || one != value) {
				rest.Add(other, one)
			}
		}
	}
	return rest
}

// hiddenFields are the fields of a query, for a form that sends them on.
func hiddenFields(q url.Values) (fields []field) {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		fields = append(fields, field{Name: name, Values: q[name]})
	}
	return fields
}

// filter reads the filter of a request, if the person may search by it.
func (r *request) filter(q url.Values) (letters.Filter, error) {
	f, err := operate.ParseFilter(q, r.Now)
	if err == nil {
		err = r.who("").MaySearch(f, r.privacy)
	}
	return f, err
}

// masksPayloads reports whether any payload may be masked.
func (r *request) masksPayloads() bool { return r.privacy != privacy.None() }

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
