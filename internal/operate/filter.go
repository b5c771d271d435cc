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
	"github.com/watermill-spillway/spillway/redrive/campaigns"
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

// Selection is what a person chose: single letters, or all that matched a filter. All that matched means all that were
// there when the person saw their number: Filter.MaxSeq ends it, so that letters which arrive later are not taken.
type Selection struct {
	Seqs   []int64        // single letters, in ascending order; empty for all that match
	Filter letters.Filter // Statuses alone if there are Seqs
	Number int            // how many the person saw
	// Narrowed is set if letters in other states than the person may mean were left out of the filter.
	Narrowed bool
}

// The fields of a selection, beside those of its filter.
const (
	fieldTake   = "take"  // all: the filter, not the boxes
	fieldSeq    = "seq"   // a letter
	fieldUpTo   = "upto"  // Filter.MaxSeq
	fieldNumber = "count" // how many the person saw
)

// SelectionFields are the fields of a selection, beside those of its filter.
var SelectionFields = []string{fieldTake, fieldSeq, fieldUpTo, fieldNumber}

// ParseSelection reads a selection from values by the names of its fields.
func ParseSelection(q url.Values, now time.Time) (s Selection, err error) {
	if q.Get(fieldTake) != All {
		return parseSeqs(q[fieldSeq])
	}
	if s.Filter, err = ParseFilter(q, now); err != nil {
		return s, err
	}
	upTo, wrongUpTo := strconv.ParseInt(q.Get(fieldUpTo), 10, 64)
	number, wrongNumber := strconv.Atoi(q.Get(fieldNumber))
	if wrongUpTo != nil || wrongNumber != nil || upTo <= 0 || number <= 0 {
		return s, &Wrong{Why: "The address does not say which letters were counted. Go back to the list, and choose again."}
	}
	s.Filter.MaxSeq, s.Number = upTo, number
	return s, nil
}

func parseSeqs(values []string) (s Selection, err error) {
	for _, value := range Filled(values) {
		seq, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seq <= 0 {
			return s, &Wrong{Why: "The address names a letter that cannot be one."}
		}
		s.Seqs = append(s.Seqs, seq)
	}
	return SelectionOf(s.Seqs)
}

// SelectionOf selects single letters.
func SelectionOf(seqs []int64) (s Selection, err error) {
	s.Seqs = slices.Compact(slices.Sorted(slices.Values(seqs)))
	switch n := len(s.Seqs); {
	case n == 0:
		return s, &Wrong{Why: "No letter is chosen. Go back and check the boxes of some letters."}
	case s.Seqs[0] < 1:
		return s, wrong("seqs", "has %d: a Seq is 1 or more", s.Seqs[0])
	case n > campaigns.MaxSeqs:
		return s, wrong("", "%d letters are chosen one by one, and %d are possible. Choose all that match a filter instead.",
			n, campaigns.MaxSeqs)
	}
	s.Filter.Statuses, s.Number = letters.Statuses(), len(s.Seqs)
	return s, nil
}

// Values are the values of the selection: ParseSelection reads the same selection from them, at any time.
func (s Selection) Values() url.Values {
	if len(s.Seqs) > 0 {
		q := url.Values{}
		for _, seq := range s.Seqs {
			q.Add(fieldSeq, strconv.FormatInt(seq, 10))
		}
		return q
	}
	q := FilterValues(s.Filter)
	q.Set(fieldTake, All)
	q.Set(fieldUpTo, strconv.FormatInt(s.Filter.MaxSeq, 10))
	q.Set(fieldNumber, strconv.Itoa(s.Number))
	return q
}

// Campaign is the selection as a campaign takes it.
func (s Selection) Campaign() campaigns.Request {
	return campaigns.Request{Filter: s.Filter, Seqs: slices.Clone(s.Seqs)}
}

// Only is the selection with letters of some states. It reports whether any state is left.
func (s Selection) Only(states []letters.Status) (Selection, bool) {
	some, all := Among(s.Filter.Statuses, states)
	if !all {
		s.Filter.Statuses = slices.DeleteFunc(slices.Clone(s.Filter.Statuses), func(status letters.Status) bool {
			return !slices.Contains(states, status)
		})
	}
	return s, some
}

// Among reports whether some, and whether all of the states of a filter are among others. Without states a filter
// chooses what waits.
func Among(statuses, others []letters.Status) (some, all bool) {
	if len(statuses) == 0 {
		statuses = []letters.Status{letters.StatusWaiting}
	}
	all = true
	for _, status := range statuses {
		is := slices.Contains(others, status)
		some, all = some || is, all && is
	}
	return some, all
}

// parts are the filters that choose the letters of the selection: one, or one for each single letter.
func (s Selection) parts() []letters.Filter {
	if len(s.Seqs) == 0 {
		return []letters.Filter{s.Filter}
	}
	parts := make([]letters.Filter, len(s.Seqs))
	for i, seq := range s.Seqs {
		parts[i] = letters.Filter{After: seq - 1, MaxSeq: seq, Statuses: s.Filter.Statuses}
	}
	return parts
}
