package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// all stands for letters of every status.
const all = "all"

// filterLists are the fields of a letters.Filter that list values, by their names in a URL: those of the flags of
// redrive list.
func filterLists(f *letters.Filter) map[string]*[]string {
	return map[string]*[]string{
		"cause": &f.Causes, "topic": &f.Topics, "not-topic": &f.NotTopics, "dead-letter-topic": &f.DeadLetterTopics,
		"handler": &f.Handlers, "failure-reason": &f.Reasons, "type": &f.Types, "id": &f.IDs, "redrive-id": &f.RedriveIDs,
		"seal-key": &f.SealKeys,
	}
}

// parseFilter reads a letters.Filter from the query of a URL, without After, MaxSeq and Limit. Empty fields choose
// nothing.
func parseFilter(q url.Values, now time.Time) (f letters.Filter, err error) {
	for name, values := range q {
		for _, value := range values {
			if !utf8.ValidString(value) || !utf8.ValidString(name) {
				return f, badInput(text("filter.utf8"))
			}
		}
	}
	for name, list := range filterLists(&f) {
		*list = filled(q[name])
	}
	for _, name := range filled(q["class"]) {
		class, ok := classify.ParseClass(name)
		if !ok {
			return f, badInput(text("filter.badclass"))
		}
		f.Classes = append(f.Classes, class)
	}
	for _, status := range filled(q["status"]) {
		if status == all {
			f.Statuses = letters.Statuses()
			break
		}
		f.Statuses = append(f.Statuses, letters.Status(status))
	}
	for _, pair := range filled(q["metadata"]) {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return f, badInput(text("filter.badmetadata"))
		}
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[key] = value
	}
	if q.Get("unsealed") != "" {
		f.SealKeys = append(f.SealKeys, "")
	}
	f.Description, f.Payload, f.StackHash = q.Get("text"), q.Get("payload"), q.Get("stack")
	f.NoOrigin, f.Leased = q.Get("no-origin") != "", q.Get("leased") != ""
	if f.Since, err = moment(q.Get("since"), now); err != nil {
		return f, err
	}
	if f.Until, err = moment(q.Get("until"), now); err != nil {
		return f, err
	}
	if err := f.Validate(); err != nil {
		return f, badInput(err.Error())
	}
	return f, nil
}

// filterValues is the query of a filter: parseFilter reads the same filter from it, at any time.
func filterValues(f letters.Filter) url.Values {
	q := url.Values{}
	for name, list := range filterLists(&f) {
		for _, value := range *list {
			if value != "" {
				q.Add(name, value)
			}
		}
	}
	if slices.Contains(f.SealKeys, "") {
		q.Set("unsealed", "1")
	}
	for _, class := range f.Classes {
		q.Add("class", class.String())
	}
	if slices.Equal(f.Statuses, letters.Statuses()) {
		q.Set("status", all)
	} else {
		for _, status := range f.Statuses {
			q.Add("status", string(status))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.Metadata)) {
		q.Add("metadata", key+"="+f.Metadata[key])
	}
	for name, value := range map[string]string{"text": f.Description, "payload": f.Payload, "stack": f.StackHash} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range map[string]bool{"no-origin": f.NoOrigin, "leased": f.Leased} {
		if value {
			q.Set(name, "1")
		}
	}
	for name, value := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !value.IsZero() {
			q.Set(name, value.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// filter reads the filter of a request, if the person may search by it.
func (r *request) filter(q url.Values) (letters.Filter, error) {
	f, err := parseFilter(q, r.now)
	if err != nil {
		return f, err
	}
	if why := r.maySearch(f); why != "" {
		return f, &fault{status: http.StatusForbidden, title: text("error.forbidden"), text: why}
	}
	return f, nil
}

// maySearch says why a person may not search by a filter, if so. What a person may not see, the person may not search
// for either: the answers would say it, a character at a time. A person who may operate may see it, on record.
func (r *request) maySearch(f letters.Filter) (whyNot string) {
	switch {
	case r.person.Role >= Operate:
		return ""
	case r.person.Role < Look && (f.Payload != "" || len(f.Metadata) > 0 || f.Description != ""):
		return text("filter.nolook")
	case f.Payload != "" && r.masksPayloads():
		return text("filter.nopayload")
	}
	for key, value := range f.Metadata {
		if r.privacy.Metadata(key, value) != value {
			return text("filter.novalue")
		}
	}
	return ""
}

// masksPayloads reports whether any payload may be masked.
func (r *request) masksPayloads() bool { return r.privacy != privacy.None() }

// filled are the values that are not empty, each once: a form sends its empty fields too.
func filled(values []string) (some []string) {
	seen := make(map[string]bool, len(values))
	for _, value := range values {
		if value != "" && !seen[value] {
			seen[value] = true
			some = append(some, value)
		}
	}
	return some
}

// moment reads a time, or a time ago.
func moment(s string, now time.Time) (time.Time, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return time.Time{}, nil
	}
	ago := s
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 10_000 {
			ago = strconv.Itoa(24*n) + "h"
		}
	}
	if d, err := time.ParseDuration(ago); err == nil && d >= 0 {
		return now.Add(-d).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05",
		"2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, badInput(text("filter.time"))
}
