package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
)

// route is one row of the table: who may send which request, and what answers it.
type route struct {
	// Name is that of the page: the same for the GET that shows a form and the POST that it sends.
	web.Route
	handle handler
	nav    string // of the page in the navigation, if it stands there
	// fields of the forms that a POST may send: another is refused, as a setting that is misspelt is not set
	form []string
}

type handler = func(*console, *request) (answer, error)

// The fields of queries, and of forms.
var (
	filterFields    = slices.Concat([]string{"status", "class"}, oftenFields, seldomFields, flagFields)
	selectionFields = slices.Concat(filterFields, operate.SelectionFields)
	countedFields   = slices.Concat(selectionFields, []string{fieldExact})
	causesFields    = slices.Concat(filterFields, []string{fieldRows, fieldSkip})
	lettersFields   = slices.Concat(selectionFields, []string{"rows", "order", "after", fieldExact})
	auditFields     = operate.RecordFields
	redriveForm     = slices.Concat(selectionFields, settingsFields(), []string{fieldSeen, "do"})
	editForm        = []string{"do", "version", "key", "reason", "payload", "decoded", "set", "unset"}
	decisionForm    = slices.Concat(selectionFields, []string{"key", "reason"})
)

// unknown returns a field of a query, or of a form, that is none of those named.
func unknown(q url.Values, fields []string) (name string, found bool) {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(fields, name) {
			return name, true
		}
	}
	return "", false
}

// routes returns all routes. A route without a row in TestRights fails that test.
func routes() []route {
	get := func(name, pattern string, handle handler, fields ...string) route {
		return route{Route: web.Route{Name: name, Method: http.MethodGet, Pattern: pattern, Right: operate.LookWithoutPayload,
			Query: fields}, handle: handle}
	}
	post := func(name, pattern string, handle handler, form ...string) route {
		return route{Route: web.Route{Name: name, Method: http.MethodPost, Pattern: pattern, Right: operate.Act}, handle: handle,
			form: form}
	}
	act := func(name, pattern string, handle handler) route {
		return post(name, pattern, handle, "reason")
	}
	// both are the page of a form, and what the form sends
	both := func(name, pattern string, show, send handler, fields, form []string, body int64,
		within time.Duration) []route {
		page, sent := get(name, pattern, show, fields...), post(name, pattern, send, form...)
		page.Right, sent.Body, sent.Within = operate.Act, body, within
		return []route{page, sent}
	}
	all := slices.Concat([]route{
		get("overview", "/", (*console).overview),
		get("causes", "/causes", (*console).causes, causesFields...),
		get("letters", "/letters", (*console).letters, lettersFields...),
		get("letter", "/letters/{seq}", (*console).letter, "view"),
		act("unmasked", "/letters/{seq}/payload", (*console).downloadUnmasked),
		get("sequences", "/sequences", (*console).sequences, "rows"),
		get("sequence", "/sequences/{seq}", (*console).sequence),
		get("campaigns", "/campaigns", (*console).campaignList, "state", "before", "before-id"),
		get("campaign", "/campaigns/{id}", (*console).campaign),
		post("cause", "/causes/{cause}", (*console).noteCause, "owner", "note", "link", "snooze", fieldSeen, "reason"),
		act("freeze", "/policies/freeze", freezes(true)),
		act("thaw", "/policies/thaw", freezes(false)),
		act("freeze", "/policies/{name}/freeze", freezes(true)),
		act("thaw", "/policies/{name}/thaw", freezes(false)),
		act("unblock", "/policies/{name}/{cause}/release", (*console).unblock),
		get("discarded", "/discards/{id}", decidedPageOf(discards), countedFields...),
		act("discarded", "/discards/{id}/undo", (*console).undoDiscard),
		get("waiting", "/restores/{id}", decidedPageOf(restores), countedFields...),
		get("audit", "/audit", (*console).audit, auditFields...),
		get("audit", "/audit/audit.csv", (*console).exportAudit, auditFields...),
		staticRoute,
	},
		both("redrive", "/redrive", (*console).redriveForm, (*console).redrive, countedFields, redriveForm, maxEditForm,
			2*operate.Starting),
		both("edit", "/letters/{seq}/edit", (*console).editForm, (*console).edit, nil, editForm, maxEditForm, 2*operate.Starting),
		both("discard", "/discard", decisionFormOf(discards), decide(discards), countedFields, decisionForm, 0, 2*stepTime),
		both("restore", "/restore", decisionFormOf(restores), decide(restores), countedFields, decisionForm, 0, 2*stepTime))
	for _, s := range operate.Steerings {
		one := act(s.Name, "/campaigns/{id}/"+s.Name, steer(s))
		if one.Right, one.Within = s.Least(), 2*operate.Starting; s.Rated {
			one.form = append(one.form, "rate")
		}
		all = append(all, one)
	}
	for _, s := range sequenceSteps {
		all = append(all, act(s.route, "/sequences/{seq}/"+s.Name, decideSequence(s)))
	}
	for i := range all {
		r := &all[i]
		switch r.nav = navigation[r.Pattern]; r.Pattern {
		case "/discards/{id}/undo":
			r.Within = 2 * stepTime
		case "/audit/audit.csv":
			r.Within = exporting
		}
	}
	return all
}

// navigation names the pages that stand in the navigation, in the order of routes.
var navigation = map[string]string{"/": "Overview", "/causes": "Causes", "/letters": "Letters", "/sequences": "Sequences",
	"/campaigns": "Campaigns", "/audit": "Audit"}

// staticRoute has what needs no right.
var staticRoute = route{Route: web.Route{Name: "static", Method: http.MethodGet, Pattern: "/static/{file}"},
	handle: (*console).static}
