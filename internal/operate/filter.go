package operate

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// All is the status of letters of every status.
const All = "all"

// FilterField is a field of a filter. All faces call it by the same name: a flag, a field of a URL.
type FilterField struct{ Name, Label, Hint string }

// FilterFields are all fields of a filter, in the order of a form.
var FilterFields = []FilterField{
	{"status", "Status", ""},
	{"class", "Class", ""},
	{"topic", "Topic", ""},
	{"handler", "Handler", ""},
	{"failure-reason", "Reason", ""},
	{"text", "Text in the description", ""},
	{"since", "Failed since", "2h, 3d, 2026-03-01T12:00"},
	{"until", "Failed before", "2h, 3d, 2026-03-01T12:00"},
	{"cause", "Cause", ""},
	{"id", "Message id", ""},
	{"type", "Error type", ""},
	{"stack", "Hash of the stack", ""},
	{"not-topic", "Not of the topic", ""},
	{"dead-letter-topic", "Dead-letter topic", ""},
	{"redrive-id", "Came back from the redrive", ""},
	{"seal-key", "Sealed with the key", ""},
	{"metadata", "Metadata", "key=value"},
	{"payload", "Text in the payload (reads each letter)", "as the bytes are"},
	{"no-origin", "that do not say where they came from", ""},
	{"leased", "that a program works on now", ""},
	{"unsealed", "that are not sealed", ""},
}

// FieldOf is the field of a name.
func FieldOf(name string) FilterField {
	return FilterFields[slices.IndexFunc(FilterFields, func(f FilterField) bool { return f.Name == name })]
}

// filterLists are the fields that list values.
func filterLists(f *letters.Filter) map[string]*[]string {
	return map[string]*[]string{
		"cause": &f.Causes, "topic": &f.Topics, "not-topic": &f.NotTopics, "dead-letter-topic": &f.DeadLetterTopics,
		"handler": &f.Handlers, "failure-reason": &f.Reasons, "type": &f.Types, "id": &f.IDs,
		"redrive-id": &f.RedriveIDs,
		"seal-key":   &f.SealKeys,
	}
}

// filterTexts are the fields with one text.
func filterTexts(f *letters.Filter) map[string]*string {
	return map[string]*string{"text": &f.Description, "payload": &f.Payload, "stack": &f.StackHash}
}

// filterFlags are the fields that are set or not.
func filterFlags(f *letters.Filter) map[string]*bool {
	return map[string]*bool{"no-origin": &f.NoOrigin, "leased": &f.Leased}
}

// filterTimes are the fields with a time.
func filterTimes(f *letters.Filter) map[string]*time.Time {
	return map[string]*time.Time{"since": &f.Since, "until": &f.Until}
}

// ParseFilter reads a filter from values by the names of its fields, without After, MaxSeq and Limit. Empty values
// choose nothing.
func ParseFilter(q url.Values, now time.Time) (f letters.Filter, err error) {
	for name, values := range q {
		for _, value := range values {
			if !utf8.ValidString(value) || !utf8.ValidString(name) {
				return f, wrongValue(FilterFieldName(name), value, "it must be UTF-8")
			}
		}
	}
	for name, list := range filterLists(&f) {
		*list = Filled(q[name])
	}
	for _, name := range Filled(q["class"]) {
		class, err := ParseClass("class", name)
		if err != nil {
			return f, err
		}
		f.Classes = append(f.Classes, class)
	}
	if f.Statuses, err = parseStatuses(q["status"]); err != nil {
		return f, err
	}
	if f.Metadata, err = Pairs("metadata", q["metadata"]); err != nil {
		return f, err
	}
	if q.Get("unsealed") != "" {
		f.SealKeys = append(f.SealKeys, "")
	}
	for name, text := range filterTexts(&f) {
		*text = q.Get(name)
	}
	for name, flag := range filterFlags(&f) {
		*flag = q.Get(name) != ""
	}
	for name, at := range filterTimes(&f) {
		if *at, err = Moment(name, q.Get(name), now); err != nil {
			return f, err
		}
	}
	if err := f.Validate(); err != nil {
		return f, &Wrong{Why: err.Error()}
	}
	return f, nil
}

// FilterFieldName is a name as an error may say it: one that no field has is not repeated.
func FilterFieldName(name string) string {
	if slices.ContainsFunc(FilterFields, func(f FilterField) bool { return f.Name == name }) {
		return name
	}
	return "a field"
}

// ParseClass reads a class of failures.
func ParseClass(field, name string) (classify.Class, error) {
	var class classify.Class
	if class.UnmarshalText([]byte(name)) != nil {
		return class, wrongValue(field, name, "use permanent, invalid, transient or unknown")
	}
	return class, nil
}

func parseStatuses(names []string) (statuses []letters.Status, err error) {
	for _, name := range Filled(names) {
		switch status := letters.Status(name); {
		case name == All:
			return letters.Statuses(), nil
		case !slices.Contains(letters.Statuses(), status):
			return nil, wrongValue("status", name, "use one of "+strings.Join(StatusNames(), ", "))
		default:
			statuses = append(statuses, status)
		}
	}
	return statuses, nil
}

// StatusNames are the values of the field status.
func StatusNames() []string {
	names := []string{All}
	for _, status := range letters.Statuses() {
		names = append(names, string(status))
	}
	return names
}

// Pairs reads key=value.
func Pairs(field string, lines []string) (pairs map[string]string, err error) {
	for _, line := range Filled(lines) {
		key, value, found := strings.Cut(line, "=")
		if !found || key == "" {
			return nil, wrongValue(field, line, "write key=value")
		}
		if pairs == nil {
			pairs = map[string]string{}
		}
		if other, twice := pairs[key]; twice {
			return nil, wrongValue(field, line, "the key is given with another value too, "+strconv.Quote(other)+": give one")
		}
		pairs[key] = value
	}
	return pairs, nil
}

// FilterValues are the values of a filter: ParseFilter reads the same filter from them, at any time.
func FilterValues(f letters.Filter) url.Values {
	q := url.Values{}
	for name, list := range filterLists(&f) {
		if some := Filled(*list); len(some) > 0 {
			q[name] = some
		}
	}
	if slices.Contains(f.SealKeys, "") {
		q.Set("unsealed", "1")
	}
	for _, class := range f.Classes {
		q.Add("class", class.String())
	}
	if slices.Equal(f.Statuses, letters.Statuses()) {
		q.Set("status", All)
	} else {
		for _, status := range f.Statuses {
			q.Add("status", string(status))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.Metadata)) {
		q.Add("metadata", key+"="+f.Metadata[key])
	}
	for name, text := range filterTexts(&f) {
		if *text != "" {
			q.Set(name, *text)
		}
	}
	for name, flag := range filterFlags(&f) {
		if *flag {
			q.Set(name, "1")
		}
	}
	for name, at := range filterTimes(&f) {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// Filled are the values that are not empty, each once: a form sends its empty fields too.
func Filled(values []string) (some []string) {
	seen := make(map[string]bool, len(values))
	for _, value := range values {
		if value != "" && !seen[value] {
			seen[value] = true
			some = append(some, value)
		}
	}
	return some
}
