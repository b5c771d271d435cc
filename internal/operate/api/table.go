package api

import (
	"net/http"
	"slices"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
)

// reading are the routes that change nothing.
func reading() []Route {
	get := func(name, pattern string, handle handler, gives any, says string, query ...string) Route {
		return Route{Route: web.Route{Name: name, Method: get, Pattern: pattern, Right: look, Query: query}, handle: handle,
			Gives: gives, Says: says}
	}
	all := []Route{
		get("document", "/openapi.json", (*Handler).document, "application/json", "This document."),
		get("service", "/", (*Handler).service, operate.ServiceData{},
			"The version of the API, the service, who the person is and what the person may do."),
		get("health", "/health", (*Handler).health, operate.HealthData{},
			"How many letters and campaigns there are, by their status."),
		get("causes", "/causes", (*Handler).causes, operate.CausesData{}, "Why letters failed, the most frequent causes "+
			"first, a page at a time; after leaves out so many. With begins, and nothing else, all causes whose hash begins "+
			"so.", slices.Concat(filterFields, []string{"limit", "after", "begins"})...),
		get("letters", "/letters", (*Handler).letters, operate.LettersData{},
			"Letters without their payloads, in the order in which they arrived, a page at a time.", lettersFields...),
		get("count", "/letters/count", (*Handler).count, operate.CountData{},
			"How many letters a filter chooses, up to which one.", filterFields...),
		get("letter", "/letters/{seq}", (*Handler).letter, operate.WholeData{},
			"A letter, masked, with its record. Without the right to look it has no payload and no metadata."),
		get("payload", "/letters/{seq}/payload", (*Handler).payload, "application/octet-stream",
			"The exact bytes of a payload, if none of them is masked."),
		get("campaigns", "/campaigns", (*Handler).campaigns, operate.CampaignsData{}, "Campaigns, the newest first, a page "+
			"at a time. With begins, and nothing else, all whose id begins so.", "state", "limit", "after", "begins"),
		get("campaign", "/campaigns/{id}", (*Handler).campaign, operate.CampaignRecord{}, "A campaign and its record."),
		get("sequences", "/sequences", (*Handler).sequences, operate.SequencesData{},
			"Keys whose messages wait in order, those with the most messages first.", "limit"),
		get("sequence", "/sequences/{seq}", (*Handler).sequence, operate.SequenceData{},
			"The messages of a key that wait, in their order.", "limit"),
		get("audit", "/audit", (*Handler).audit, operate.EventsData{}, "The record, the newest entries first, a page at a "+
			"time.", slices.Concat(auditFields, []string{"limit", "after"})...),
		get("outages", "/outages", (*Handler).outages, operate.BreakersData{},
			"The outages and freezes of handlers that all instances share. If they share none: what the process holds that "+
				"answers."),
		get("policies", "/policies", (*Handler).policies, inside.Policies{},
			"The standing policies, which freezes they have, and which causes are blocked."),
	}
	for i := range all {
		switch r := &all[i]; r.Name {
		case "document":
			r.Right = operate.Nothing
		case "payload":
			r.Right = operate.Look
		}
	}
	return all
}

// changing are the routes that take a body.
func changing() []Route {
	post := func(name, pattern, says string, handle handler, body, gives any) Route {
		return Route{Route: web.Route{Name: name, Method: post, Pattern: pattern, Right: act}, handle: handle, Says: says,
			Body: body, Gives: gives, Keyed: true}
	}
	reason, policy, handler := operate.ReasonBody{}, operate.PolicyChanged{}, operate.HandlerChanged{}
	all := []Route{
		post("unmasked", "/letters/{seq}/payload", "The exact bytes of a payload, also if they are masked elsewhere. It is "+
			"on record.", posted((*Handler).unmasked), reason, "application/octet-stream"),
		post("plan", "/plan", "What a campaign would do: a dry run. Nothing is changed.", posted((*Handler).plan),
			operate.StartBody{}, operate.PlanData{}),
		post("start", "/campaigns", "Start a campaign. Its id is the Idempotency-Key.", posted((*Handler).start),
			operate.StartBody{}, operate.CampaignData{}),
		post("edit", "/letters/{seq}/edit", "Redrive one letter with changes: start a campaign of one letter.",
			posted((*Handler).edit), operate.LetterEditBody{}, operate.CampaignData{}),
		post("discard", "/discards", "Discard letters: no redrive takes them. They can be restored.", decide(operate.Discard),
			operate.DecideBody{}, operate.DecidedData{}),
		post("restore", "/restores", "Restore discarded letters: they wait again.", decide(operate.Restore),
			operate.DecideBody{}, operate.DecidedData{}),
		post("planErasure", "/erasures/plan", "What an erasure would do: a dry run. Nothing is changed.", erase(true),
			operate.ErasureBody{}, operate.ErasedData{}),
		post("erase", "/erasures", "Erase a person's data, for good.", erase(false), operate.ErasureBody{},
			operate.ErasedData{}),
		post("freezeAll", "/policies/freeze", "Freeze all standing policies: their campaigns pause.", freeze(true), reason,
			policy),
		post("thawAll", "/policies/thaw", "End the freeze of all policies. What is paused stays so.", freeze(false), reason,
			policy),
		post("freeze", "/policies/{name}/freeze", "Freeze a standing policy: its campaigns pause.", freeze(true), reason,
			policy),
		post("thaw", "/policies/{name}/thaw", "End the freeze of a policy. What is paused stays so.", freeze(false), reason,
			policy),
		post("release", "/policies/{name}/release", "Let a policy redrive a cause again that is repaired.",
			posted((*Handler).release), operate.ReleaseBody{}, policy),
		post("noteCause", "/causes/{cause}", "Say what is known of a cause, who works on it and where, and snooze it. It is "+
			"named by its hash, or the first characters of that.", posted((*Handler).noteCause), operate.CauseBody{},
			operate.CauseNoteData{}),
		post("hold", "/outages/freeze", "Hold the messages of a handler, or of all, in all instances.", hold(true),
			operate.HandlerBody{}, handler),
		post("letGo", "/outages/release", "End the freeze of a handler, or of all handlers.", hold(false),
			operate.HandlerBody{}, handler),
	}
	for i := range all {
		switch r := &all[i]; r.Name {
		case "plan":
			r.Keyed, r.Route.Body = false, maxEdit
		case "start", "edit":
			r.Status, r.Within, r.Route.Body = http.StatusCreated, 2*operate.Starting, maxEdit
		case "planErasure":
			r.Keyed = false
		case "erase":
			r.Right = operate.Approve
		}
	}
	for _, s := range operate.Steerings {
		one := post(s.Name, "/campaigns/{id}/"+s.Name, s.Label+". "+s.Hint, steer(s), reason, operate.CampaignData{})
		if one.Right, one.Within = s.Least(), 2*operate.Starting; s.Rated {
			one.Body = operate.RateBody{}
		}
		all = append(all, one)
	}
	for _, one := range decisions {
		name := one.what.String()
		all = append(all, post(name+"Sequence", "/sequences/{seq}/"+name, one.says, decideSequence(one.what),
			operate.SequenceBody{}, operate.SequenceDecided{}))
	}
	return all
}

// Route is one row of the table: who may send which request, what answers it, and what the document says of it.
type Route struct {
	web.Route        // its name is the id of the operation in the document
	Says      string // one sentence
	Body      any    // the zero value of its body, if it takes one
	Gives     any    // the zero value of its answer, or a media type
	Status    int    // of its answer, if not 200
	Keyed     bool   // it needs an Idempotency-Key
	handle    handler
}

type handler = func(*Handler, *request) (answer, error)

// Table returns all routes. A route without a row in TestRights fails that test.
func Table() []Route { return slices.Concat(reading(), changing()) }

const (
	get  = http.MethodGet
	post = http.MethodPost
	look = operate.LookWithoutPayload
	act  = operate.Act
)

// maxEdit is how many bytes a body with an edit may have.
const maxEdit = 1 << 20

// The fields of queries.
var (
	filterFields  = namesOf(operate.FilterFields)
	lettersFields = slices.Concat(filterFields, []string{"limit", "order", "after"})
	auditFields   = []string{"by", "kind", "since", "until", "id", "redrive-id", "letter", "order"}
	// Lists are the fields that may have several values, and Flags those that are set or not.
	Lists = []string{"status", "class", "topic", "handler", "failure-reason", "cause", "id", "type", "not-topic",
		"dead-letter-topic", "redrive-id", "seal-key", "metadata", "by", "kind", "state"}
	Flags = []string{"no-origin", "leased", "unsealed"}
)

func namesOf(fields []operate.FilterField) (names []string) {
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return names
}
