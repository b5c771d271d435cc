package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
)

func reading() []route {
	return []route{
		{name: "document", method: get, pattern: "/openapi.json", right: operate.Nothing, handle: (*Handler).document,
			says: "This document.", gives: "application/json"},
		{name: "service", method: get, pattern: "/", right: look, handle: (*Handler).service,
			says:  "The version of the API, the service, who the person is and what the person may do.",
			gives: operate.ServiceData{}},
		{name: "health", method: get, pattern: "/health", right: look, handle: (*Handler).health,
			says: "How many letters and campaigns there are, by their status.", gives: operate.HealthData{}},
		{name: "causes", method: get, pattern: "/causes", right: look, handle: (*Handler).causes,
			query: slices.Concat(filterFields, []string{"limit", "cursor", "after", "begins"}),
			says: "Why letters failed, the most frequent causes first, a page at a time; after leaves out so many. With " +
				"begins, and nothing else, all causes whose hash begins so.", gives: operate.CausesData{}},
		{name: "letters", method: get, pattern: "/letters", right: look, handle: (*Handler).letters,
			query: lettersFields,
			says:  "Letters without their payloads, in the order in which they arrived, a page at a time.",
			gives: operate.LettersData{}},
		{name: "count", method: get, pattern: "/letters/count", right: look, handle: (*Handler).count,
			query: filterFields,
			says:  "How many letters a filter chooses, up to which one.", gives: operate.CountData{}},
		{name: "letter", method: get, pattern: "/letters/{seq}", right: look, handle: (*Handler).letter,
			says:  "A letter, masked, with its record. Without the right to look it has no payload and no metadata.",
			gives: operate.WholeData{}},
		{name: "story", method: get, pattern: "/letters/{seq}/events", right: look, handle: (*Handler).history,
			says: "All that happened to the message of a letter, the oldest first.", gives: operate.EventsData{}},
		{name: "payload", method: get, pattern: "/letters/{seq}/payload", right: operate.Look,
			handle: (*Handler).payload, says: "The exact bytes of a payload, if none of them is masked.",
			gives: "application/octet-stream"},
		{name: "campaigns", method: get, pattern: "/campaigns", right: look, handle: (*Handler).campaigns,
			query: []string{"state", "limit", "cursor", "begins"},
			says:  "Campaigns, the newest first, a page at a time. With begins, and nothing else, all whose id begins so.",
			gives: operate.CampaignsData{}},
		{name: "campaign", method: get, pattern: "/campaigns/{id}", right: look, handle: (*Handler).campaign,
			says: "A campaign and its record.", gives: operate.CampaignRecord{}},
		{name: "outcomes", method: get, pattern: "/campaigns/{id}/outcomes", right: look, handle: (*Handler).outcomes,
			says: "What became of the letters of a campaign.", gives: operate.OutcomesData{}},
		{name: "sequences", method: get, pattern: "/sequences", right: look, handle: (*Handler).sequences,
			query: []string{"limit"}, says: "Keys whose messages wait in order, those with the most messages first.",
			gives: operate.SequencesData{}},
		{name: "sequence", method: get, pattern: "/sequences/{seq}", right: look, handle: (*Handler).sequence,
			query: []string{"limit"}, says: "The messages of a key that wait, in their order.",
			gives: operate.SequenceData{}},
		{name: "audit", method: get, pattern: "/audit", right: look, handle: (*Handler).audit,
			query: slices.Concat(auditFields, []string{"limit", "cursor", "after"}),
			says:  "The record, the newest entries first, a page at a time.", gives: operate.EventsData{}},
		{name: "export", method: get, pattern: "/audit.jsonl", right: look, handle: (*Handler).export,
			within: exporting,
			query:  auditFields, says: "The record, an entry a line.", gives: "application/jsonl"},
		{name: "breakers", method: get, pattern: "/breakers", right: look, handle: (*Handler).breakers,
			says: "The handlers whose messages the process holds that answers.", gives: operate.BreakersData{}},
		{name: "outages", method: get, pattern: "/outages", right: look, handle: (*Handler).outages,
			says: "The outages and freezes of handlers that all instances share.", gives: operate.BreakersData{}},
		{name: "policies", method: get, pattern: "/policies", right: look, handle: (*Handler).policies,
			says:  "The standing policies, which freezes they have, and which causes are blocked.",
			gives: inside.Policies{}},
		{name: "policy", method: get, pattern: "/policies/{name}", right: look, handle: (*Handler).policy,
			says: "A standing policy.", gives: inside.Policy{}},
		{name: "erasure", method: get, pattern: "/erasures/{id}", right: operate.Look, handle: (*Handler).erasure,
			says: "What is on record of an erasure.", gives: operate.ErasureData{}},
		{name: "discarded", method: get, pattern: "/discards/{id}", right: look, handle: decided(operate.Discard),
			says: "What a request to discard letters did.", gives: operate.DecidedData{}},
		{name: "restored", method: get, pattern: "/restores/{id}", right: look, handle: decided(operate.Restore),
			says: "What a request to restore letters did.", gives: operate.DecidedData{}},
	}
}

// standing are decisions about what is not letters: policies, handlers, leases, and a person's data.
func standing() []route {
	one := func(name, pattern, says string, handle func(*Handler, *request) (answer, error), body, gives any) route {
		return route{name: name, method: post, pattern: pattern, right: act, handle: handle, says: says, body: body,
			gives: gives, keyed: true}
	}
	policy, handler := operate.PolicyChanged{}, operate.HandlerChanged{}
	plan := one("planErasure", "/erasures/plan", "What an erasure would do: a dry run. Nothing is changed.",
		erase(true),
		operate.ErasureBody{}, operate.ErasedData{})
	carry := one("erase", "/erasures", "Erase a person's data, for good.", erase(false), operate.ErasureBody{},
		operate.ErasedData{})
	plan.keyed, carry.right = false, operate.Approve
	return []route{plan, carry,
		one("freezeAll", "/policies/freeze", "Freeze all standing policies: their campaigns pause.", freeze(true),
			operate.ReasonBody{}, policy),
		one("thawAll", "/policies/thaw", "End the freeze of all policies. What is paused stays so.", freeze(false),
			operate.ReasonBody{}, policy),
		one("freeze", "/policies/{name}/freeze", "Freeze a standing policy: its campaigns pause.", freeze(true),
			operate.ReasonBody{}, policy),
		one("thaw", "/policies/{name}/thaw", "End the freeze of a policy. What is paused stays so.", freeze(false),
			operate.ReasonBody{}, policy),
		one("release", "/policies/{name}/release", "Let a policy redrive a cause again that is repaired.",
			(*Handler).release, operate.ReleaseBody{}, policy),
		one("hold", "/outages/freeze", "Hold the messages of a handler, or of all, in all instances.", hold(true),
			operate.HandlerBody{}, handler),
		one("letGo", "/outages/release", "End the freeze of a handler, or of all handlers.", hold(false),
			operate.HandlerBody{}, handler),
		one("breakLeases", "/leases/break", "Take letters away from a program that is gone.", (*Handler).breakLeases,
			operate.LeasesBody{}, operate.LeasesData{}),
	}
}

func deciding() []route {
	all := []route{
		{name: "unmasked", method: post, pattern: "/letters/{seq}/payload", right: act, handle: (*Handler).unmasked,
			says: "The exact bytes of a payload, also if they are masked elsewhere. It is on record.",
			body: operate.ReasonBody{}, gives: "application/octet-stream", keyed: true},
		{name: "plan", method: post, pattern: "/plan", right: act, handle: (*Handler).plan, most: maxEdit,
			says: "What a campaign would do: a dry run. Nothing is changed.", body: operate.StartBody{},
			gives: operate.PlanData{}},
		{name: "start", method: post, pattern: "/campaigns", right: act, handle: (*Handler).start, most: maxEdit,
			within: 2 * operate.Starting, says: "Start a campaign. Its id is the Idempotency-Key.",
			body:  operate.StartBody{},
			gives: operate.CampaignData{}, status: http.StatusCreated, keyed: true},
		{name: "edit", method: post, pattern: "/letters/{seq}/edit", right: act, handle: (*Handler).edit, most: maxEdit,
			within: 2 * operate.Starting, says: "Redrive one letter with changes: start a campaign of one letter.",
			body: operate.LetterEditBody{}, gives: operate.CampaignData{}, status: http.StatusCreated, keyed: true},
		{name: "discard", method: post, pattern: "/discards", right: act, handle: decide(operate.Discard),
			says: "Discard letters: no redrive takes them. They can be restored.", body: operate.DecideBody{},
			gives: operate.DecidedData{}, keyed: true},
		{name: "restore", method: post, pattern: "/restores", right: act, handle: decide(operate.Restore),
			says: "Restore discarded letters: they wait again.", body: operate.DecideBody{},
			gives: operate.DecidedData{},
			keyed: true},
		{name: "undo", method: post, pattern: "/discards/{id}/undo", right: act, handle: (*Handler).undo,
			says: "Restore the letters of a request to discard that nothing has changed since.",
			body: operate.ReasonBody{}, gives: operate.DecidedData{}, keyed: true},
	}
	all = append(all, standing()...)
	for _, s := range operate.Steerings {
		one := route{name: s.Name, method: post, pattern: "/campaigns/{id}/" + s.Name, right: s.Least(), keyed: true,
			handle: steer(s), within: 2 * operate.Starting, body: operate.ReasonBody{}, gives: operate.CampaignData{},
			says: s.Label + ". " + s.Hint}
		if s.Rated {
			one.body = operate.RateBody{}
		}
		all = append(all, one)
	}
	for _, one := range decisions {
		all = append(all, route{name: one.what.String() + "Sequence", method: post, right: act, keyed: true,
			pattern: "/sequences/{seq}/" + one.what.String(), handle: decideSequence(one.what), says: one.says,
			body: operate.SequenceBody{}, gives: operate.SequenceDecided{}})
	}
	return all
}

// Row is a route, for tests and the document.
type Row struct {
	Name, Method, Pattern string
	Right                 uint8
	Keyed                 bool
	Body, Gives           any
	Status                int
	Query                 []string
	Says                  string
}

// Table returns all routes.
func Table() (rows []Row) {
	for _, r := range routes() {
		rows = append(rows, Row{r.name, r.method, r.pattern, uint8(r.right), r.keyed, r.body, r.gives, max(r.status, 200),
			r.query, r.says})
	}
	return rows
}

// Lists and Flags are the fields of queries that may have several values, and those that are set or not.
func Lists() []string { return lists }
func Flags() []string { return flags }

// route is one row of the table: who may send which request, what answers it, and what the document says of it.
type route struct {
	name    string // the id of the operation in the document
	method  string // GET serves HEAD too
	pattern string // {name} stands for one part of the path
	right   operate.Right
	says    string // one sentence
	handle  func(*Handler, *request) (answer, error)
	query   []string      // the fields of the query: another is refused
	body    any           // the zero value of its body, if it takes one
	gives   any           // the zero value of its answer, or a media type
	status  int           // of its answer, if not 200
	keyed   bool          // it needs an Idempotency-Key
	within  time.Duration // of all that the route does, if not Handler.Timeout
	most    int64         // bytes that a body may have, if not maxBody
}

const (
	get  = http.MethodGet
	post = http.MethodPost
	look = operate.LookWithoutPayload
	act  = operate.Act
)

const (
	// maxEdit is how many bytes a body with an edit may have.
	maxEdit = 1 << 20
)

// The fields of queries.
var (
	filterFields  = namesOf(operate.FilterFields)
	lettersFields = slices.Concat(filterFields, []string{"limit", "cursor", "order", "after"})
	auditFields   = []string{"by", "kind", "since", "until", "id", "redrive-id", "letter", "order"}
	// lists are the fields that may have several values, and flags those that are set or not.
	lists = []string{"status", "class", "topic", "handler", "failure-reason", "cause", "id", "type", "not-topic",
		"dead-letter-topic", "redrive-id", "seal-key", "metadata", "by", "kind", "state"}
	flags = []string{"no-origin", "leased", "unsealed"}
)

func namesOf(fields []operate.FilterField) (names []string) {
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return names
}

// routes returns all routes. A route without a row in TestRights fails that test.
func routes() []route { return slices.Concat(reading(), deciding()) }
