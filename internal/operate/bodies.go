package operate

import (
	"time"

	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// What programs send. The access function of the server says who they are.

// ReasonBody says why something is done.
type ReasonBody struct {
	// Reason is for those who read the record later. Required.
	Reason string `json:"reason"`
}

// RateBody is the new rate of a campaign.
type RateBody struct {
	ReasonBody
	// Rate is the number of letters per second. 0 means no limit. Required.
	Rate *float64 `json:"rate"`
}

// StartBody is a campaign to start, or to plan. Its id is the Idempotency-Key.
type StartBody struct {
	RequestData
	// Filter chooses the letters. An empty one chooses all that wait. One of filter and seqs is required.
	Filter *letters.Filter `json:"filter,omitempty"`
	// Seen is the number of letters that the person saw. If more match, nothing is started, and the status is 409.
	Seen *int `json:"seen,omitempty"`
}

// DecideBody chooses letters that are discarded, or restored.
type DecideBody struct {
	ReasonBody
	// Filter chooses the letters. It needs max_seq, as letters/count returns it, so that no letter is taken that
	// arrives later. One of filter and seqs is required.
	Filter *letters.Filter `json:"filter,omitempty"`
	// Seqs are single letters, at most 1,000.
	Seqs []int64 `json:"seqs,omitempty"`
	// Seen is the number of letters that the person saw. If more match, nothing is done, and the status is 409.
	Seen *int `json:"seen,omitempty"`
}

// LetterEditBody redrives one letter with changes.
type LetterEditBody struct {
	ReasonBody
	// Version is that of the letter that the person saw. If the letter has changed, the status is 409. Required.
	Version string `json:"version"`
	// Edit is what changes. Required.
	Edit *campaigns.Edit `json:"edit"`
}

// SequenceBody says why something is decided about the first message of a key.
type SequenceBody struct {
	ReasonBody
	// All discards the messages behind it too that wait now.
	All bool `json:"all,omitempty"`
}

// ReleaseBody names a cause that is repaired.
type ReleaseBody struct {
	ReasonBody
	// Cause is the hash of the cause, or its first characters. Required.
	Cause string `json:"cause"`
}

// HandlerBody names a handler whose messages are held, or are held no more. One of handler and all is required.
type HandlerBody struct {
	ReasonBody
	Handler string `json:"handler,omitempty"`
	// All stands for all handlers. It ends no freeze of a single one.
	All bool `json:"all,omitempty"`
}

// ErasureBody says whose data are erased. One of ids and metadata is required.
type ErasureBody struct {
	ReasonBody
	// IDs are ids of messages, at most 500.
	IDs []string `json:"ids,omitempty"`
	// Metadata are keys of metadata with the values that they must have. All must be there.
	Metadata map[string]string `json:"metadata,omitempty"`
	// RemoveKeys removes the receiver's keys: a message that comes again is applied again.
	RemoveKeys bool `json:"remove_keys,omitempty"`
	// ForgetIDs replaces the ids by hashes, in the record too, and removes the keys.
	ForgetIDs bool `json:"forget_ids,omitempty"`
}

// SequenceDecided is what was decided about a key. The owner of its partition carries it out.
type SequenceDecided struct {
	Seq     int64  `json:"seq"`
	Decided string `json:"decided"`
	// Messages is for how many messages. It is 0 if the same request came before.
	Messages int `json:"messages"`
}

// Problem is why a request was not answered, as RFC 9457 has it.
type Problem struct {
	// Type is a name for programs. It stays, and the texts may change.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what happened, and what to do.
	Detail string `json:"detail,omitempty"`
	// Errors are the fields of the request that are wrong.
	Errors []FieldProblem `json:"errors,omitempty"`
	// LeftOut are the letters that a campaign would not take, if none is left.
	LeftOut []campaigns.LeftOut `json:"left_out,omitempty"`
}

// FieldProblem is what is wrong with a field.
type FieldProblem struct {
	Field  string `json:"field"`
	Value  string `json:"value,omitempty"`
	Detail string `json:"detail"`
	// Remedy says how the field can be, if that is said apart.
	Remedy string `json:"remedy,omitempty"`
}

// The types of problems.
const (
	ProblemInvalid     = "urn:spillway:invalid"        // a field or the address is wrong
	ProblemForbidden   = "urn:spillway:forbidden"      // the right is too little
	ProblemCrossSite   = "urn:spillway:cross-site"     // a page of another site sent it
	ProblemNotFound    = "urn:spillway:not-found"      // it is not there, or was purged
	ProblemNoRoute     = "urn:spillway:no-route"       // the address is none of this version
	ProblemNoField     = "urn:spillway:no-field"       // the request has a field that this version does not know
	ProblemMethod      = "urn:spillway:method"         // the address takes other methods
	ProblemChanged     = "urn:spillway:changed"        // something happened meanwhile: look again
	ProblemNoLetters   = "urn:spillway:no-letters"     // no letter of the selection can be taken
	ProblemNoOutages   = "urn:spillway:no-outages"     // the breakers share nothing here
	ProblemSealed      = "urn:spillway:sealed"         // the payload cannot be opened here
	ProblemErased      = "urn:spillway:erased"         // the payload was erased
	ProblemMasked      = "urn:spillway:masked"         // the payload has values that are masked
	ProblemKeyMissing  = "urn:spillway:key-missing"    // an Idempotency-Key is needed
	ProblemKeyReused   = "urn:spillway:key-reused"     // another request had the Idempotency-Key
	ProblemTooLarge    = "urn:spillway:too-large"      // the body is too large
	ProblemMediaType   = "urn:spillway:media-type"     // the body is no JSON
	ProblemSlow        = "urn:spillway:slow"           // the body did not arrive in time
	ProblemAccess      = "urn:spillway:access-unknown" // the service does not know who asks: try again
	ProblemUnavailable = "urn:spillway:unavailable"    // the database does not answer: try again
	ProblemTimeout     = "urn:spillway:timeout"        // it takes too long: choose fewer letters, or try again
	ProblemFailed      = "urn:spillway:failed"         // a fault of the server
)

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// What the API answers, where it is more than one of the data. A list has in Next what its next page comes after.

// CausesData is a page of causes.
type CausesData struct {
	Causes []CauseData `json:"causes"`
	Next   string      `json:"next,omitempty"`
}

// LettersData is a page of letters.
type LettersData struct {
	Letters []LetterData `json:"letters"`
	Next    string       `json:"next,omitempty"`
}

// CountData is how many letters a filter chooses, up to the last letter that was there.
type CountData struct {
	// Counted is false if counting took too long. Then Count is missing.
	Counted bool `json:"counted"`
	Count   *int `json:"count,omitempty"`
	// MaxSeq is the last letter that was there. As max_seq of a filter it leaves out what arrives later.
	MaxSeq int64 `json:"max_seq"`
}

// EventsData is a page of the record.
type EventsData struct {
	Events []EventData `json:"events"`
	Next   string      `json:"next,omitempty"`
}

// CampaignsData is a page of campaigns.
type CampaignsData struct {
	Campaigns []CampaignData `json:"campaigns"`
	Next      string         `json:"next,omitempty"`
}

// OutcomeData is what became of some letters of a campaign.
type OutcomeData struct {
	Outcome string `json:"outcome"`
	Means   string `json:"means"`
	Letters int    `json:"letters"`
	// Bad reports that a person has to look.
	Bad bool `json:"bad"`
}

// DecidedData is what a decision about letters did.
type DecidedData struct {
	ID     string    `json:"id"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// Letters are those that nothing has changed since. It is missing if they could not be counted in time.
	Letters *int `json:"letters,omitempty"`
	// Complete is false if time was over before all letters were done: send the request again, with the same key.
	Complete bool `json:"complete"`
}

// SequencesData are keys whose messages wait in order.
type SequencesData struct {
	Sequences []parked.Parked `json:"sequences"`
	// Cut reports that there may be more.
	Cut bool `json:"cut,omitempty"`
}

// SequenceData is a key, and the messages that wait, the first ones.
type SequenceData struct {
	parked.Parked
	Waiting []ParkedData `json:"waiting"`
}

// ParkedData is a message that waits, and its failure, if it has one.
type ParkedData struct {
	parked.Message
	Class       string `json:"class,omitempty"`
	Description string `json:"description,omitempty"`
	Attempts    int    `json:"attempts,omitempty"`
	// FirstFailedAt and LastFailedAt are the times of the first and the latest of the attempts.
	FirstFailedAt time.Time `json:"first_failed_at,omitzero"`
	LastFailedAt  time.Time `json:"last_failed_at,omitzero"`
}

// BreakersData are the handlers whose messages are held.
type BreakersData struct {
	Breakers []circuit.Status `json:"breakers"`
}

// PolicyChanged is what was done with a standing policy, or with all without a name.
type PolicyChanged struct {
	Policy string `json:"policy"`
	Cause  string `json:"cause,omitempty"`
	// State is frozen, thawed or released.
	State string `json:"state"`
	// Changed is false if it was so before.
	Changed bool `json:"changed"`
}

// HandlerChanged is what was done with a handler, or with all without a name.
type HandlerChanged struct {
	Handler string `json:"handler"`
	// State is frozen or released.
	State string `json:"state"`
	// Changed is false if there was no freeze to end, or if the same request came before.
	Changed bool `json:"changed"`
}

// ErasedData is what an erasure did in this request, or would do.
type ErasedData struct {
	// ID is that of the record. It is missing in a preview.
	ID string `json:"id,omitempty"`
	erasure.Report
	// Complete is false if time was over, or if something is in hand: send the request again, with the same key. A
	// complete one that is sent again has no numbers.
	Complete bool `json:"complete"`
}

// ServiceData is who answers, and what the person may do.
type ServiceData struct {
	Service string `json:"service"`
	// API is the version of the API: the number behind the point grows when something is added.
	API string `json:"api"`
	// Person is the name of the person in the record. It is empty for one who may only look.
	Person string `json:"person,omitempty"`
	Right  string `json:"right"`
	// Note is what the access function says about the person.
	Note string `json:"note,omitempty"`
	// Tables are the versions of the tables in the database, by their component.
	Tables map[string]int `json:"tables"`
	// Statuses, Kinds and States are the values that letters, entries of the record and campaigns can have here.
	Statuses []string `json:"statuses"`
	Kinds    []string `json:"kinds"`
	States   []string `json:"states"`
}

// HealthData says in numbers whether something is wrong.
type HealthData struct {
	// Letters are the numbers of letters by their status.
	Letters map[string]int `json:"letters"`
	// OldestFailedAt is the first failure of the letter that waits longest.
	OldestFailedAt time.Time `json:"oldest_failed_at,omitzero"`
	// Campaigns are the numbers of campaigns by their state.
	Campaigns map[string]int `json:"campaigns"`
	// Stopped is the number of campaigns that stopped themselves and wait for a person.
	Stopped int `json:"stopped"`
	// Held is the number of handlers whose messages are held.
	Held int `json:"held"`
}
