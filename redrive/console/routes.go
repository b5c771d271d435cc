package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
)

// route is one row of the table: who may send which request, and what answers it.
type route struct {
	name    string // of the page: the same for the GET that shows a form and the POST that it sends
	method  string // GET serves HEAD too
	pattern string // {name} stands for one part of the path
	right   Role   // the least role; None is for what has no data
	handle  func(*console, *request) (answer, error)
	body    int64         // bytes that a POST may have, if not maxBody
	within  time.Duration // of all that the route does, if not console.timeout
	nav     string        // of the page in the navigation, if it stands there
	fields  []string      // of the query of its URL: another is refused, as a filter that is misspelt chooses all
	// fields of the forms that a POST may send: another is refused, as a setting that is misspelt is not set
	form []string
}

// The fields of queries, and of forms.
var (
	filterFields    = slices.Concat([]string{"status", "class"}, oftenFields, seldomFields, flagFields)
	selectionFields = slices.Concat(filterFields, operate.SelectionFields)
	countedFields   = slices.Concat(selectionFields, []string{fieldExact})
	causesFields    = slices.Concat(filterFields, []string{fieldRows, fieldSkip})
	lettersFields   = slices.Concat(selectionFields, []string{"rows", "column", "order", "after", fieldExact})
	auditFields     = operate.RecordFields
	reasonForm      = []string{"reason"}
	rateForm        = []string{"reason", "rate"}
	redriveForm     = slices.Concat(selectionFields, settingsFields(), []string{fieldSeen, "do"})
	editForm        = slices.Concat([]string{"do", "version", "key", "reason", "payload"}, keyFields())
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
	return []route{
		{name: "overview", method: http.MethodGet, pattern: "/", right: LookWithoutPayload, handle: (*console).overview,
			nav: "Overview"},
		{name: "causes", method: http.MethodGet, pattern: "/causes", right: LookWithoutPayload, handle: (*console).causes,
			fields: causesFields, nav: "Causes"},
		{name: "letters", method: http.MethodGet, pattern: "/letters", right: LookWithoutPayload,
			handle: (*console).letters,
			fields: lettersFields, nav: "Letters"},
		{name: "letter", method: http.MethodGet, pattern: "/letters/{seq}", right: LookWithoutPayload,
			handle: (*console).letter, fields: []string{"view"}},
		{name: "payload", method: http.MethodGet, pattern: "/letters/{seq}/payload", right: Look,
			handle: (*console).download},
		{name: "unmasked", method: http.MethodPost, pattern: "/letters/{seq}/payload", right: Operate,
			handle: (*console).downloadUnmasked, form: reasonForm},
		{name: "export", method: http.MethodGet, pattern: "/letters/{seq}/json", right: LookWithoutPayload,
			handle: (*console).export},
		{name: "sequences", method: http.MethodGet, pattern: "/sequences", right: LookWithoutPayload,
			handle: (*console).sequences, fields: []string{"rows"}, nav: "Sequences"},
		{name: "sequence", method: http.MethodGet, pattern: "/sequences/{seq}", right: LookWithoutPayload,
			handle: (*console).sequence},
		{name: "release", method: http.MethodPost, pattern: "/sequences/{seq}/release", right: Operate,
			handle: (*console).releaseSequence, form: reasonForm},
		{name: "skip", method: http.MethodPost, pattern: "/sequences/{seq}/skip", right: Operate,
			handle: (*console).skipSequence, form: reasonForm},
		{name: "drop", method: http.MethodPost, pattern: "/sequences/{seq}/discard", right: Operate,
			handle: (*console).dropSequence, form: reasonForm},
		{name: "campaigns", method: http.MethodGet, pattern: "/campaigns", right: LookWithoutPayload,
			handle: (*console).campaignList, fields: []string{"state", "before", "before-id"}, nav: "Campaigns"},
		{name: "campaign", method: http.MethodGet, pattern: "/campaigns/{id}", right: LookWithoutPayload,
			handle: (*console).campaign},
		{name: "pause", method: http.MethodPost, pattern: "/campaigns/{id}/pause", right: Operate, handle: (*console).pause,
			form: reasonForm},
		{name: "resume", method: http.MethodPost, pattern: "/campaigns/{id}/resume", right: Operate,
			handle: (*console).resume, form: reasonForm},
		{name: "rate", method: http.MethodPost, pattern: "/campaigns/{id}/rate", right: Operate, handle: (*console).setRate,
			form: rateForm},
		{name: "cancel", method: http.MethodPost, pattern: "/campaigns/{id}/cancel", right: Operate,
			handle: (*console).cancel, within: 2 * operate.Starting, form: reasonForm},
		{name: "approve", method: http.MethodPost, pattern: "/campaigns/{id}/approve", right: Approve,
			handle: (*console).approve, form: reasonForm},
		{name: "freeze", method: http.MethodPost, pattern: "/policies/freeze", right: Operate, handle: (*console).freeze,
			form: reasonForm},
		{name: "thaw", method: http.MethodPost, pattern: "/policies/thaw", right: Operate, handle: (*console).thaw,
			form: reasonForm},
		{name: "freeze", method: http.MethodPost, pattern: "/policies/{name}/freeze", right: Operate,
			handle: (*console).freeze, form: reasonForm},
		{name: "thaw", method: http.MethodPost, pattern: "/policies/{name}/thaw", right: Operate, handle: (*console).thaw,
			form: reasonForm},
		{name: "unblock", method: http.MethodPost, pattern: "/policies/{name}/{cause}/release", right: Operate,
			handle: (*console).unblock, form: reasonForm},
		{name: "redrive", method: http.MethodGet, pattern: "/redrive", right: Operate, handle: (*console).redriveForm,
			fields: countedFields},
		{name: "redrive", method: http.MethodPost, pattern: "/redrive", right: Operate, handle: (*console).redrive,
			body: maxEditForm, within: 2 * operate.Starting, form: redriveForm},
		{name: "edit", method: http.MethodGet, pattern: "/letters/{seq}/edit", right: Operate, handle: (*console).editForm},
		{name: "edit", method: http.MethodPost, pattern: "/letters/{seq}/edit", right: Operate, handle: (*console).edit,
			body: maxEditForm, within: 2 * operate.Starting, form: editForm},
		{name: "discard", method: http.MethodGet, pattern: "/discard", right: Operate, handle: (*console).discardForm,
			fields: countedFields},
		{name: "discard", method: http.MethodPost, pattern: "/discard", right: Operate, handle: (*console).discard,
			within: 2 * stepTime, form: decisionForm},
		{name: "discarded", method: http.MethodGet, pattern: "/discards/{id}", right: LookWithoutPayload,
			handle: (*console).discarded, fields: countedFields},
		{name: "discarded", method: http.MethodPost, pattern: "/discards/{id}/undo", right: Operate,
			handle: (*console).undoDiscard, within: 2 * stepTime, form: reasonForm},
		{name: "restore", method: http.MethodGet, pattern: "/restore", right: Operate, handle: (*console).restoreForm,
			fields: countedFields},
		{name: "restore", method: http.MethodPost, pattern: "/restore", right: Operate, handle: (*console).restore,
			within: 2 * stepTime, form: decisionForm},
		{name: "waiting", method: http.MethodGet, pattern: "/restores/{id}", right: LookWithoutPayload,
			handle: (*console).restored, fields: countedFields},
		{name: "audit", method: http.MethodGet, pattern: "/audit", right: LookWithoutPayload, handle: (*console).audit,
			fields: auditFields, nav: "Audit"},
		{name: "audit", method: http.MethodGet, pattern: "/audit/{file}", right: LookWithoutPayload,
			handle: (*console).exportAudit, within: exporting, fields: auditFields},
		{name: "static", method: http.MethodGet, pattern: "/static/{file}", right: nothing, handle: (*console).static},
	}
}
