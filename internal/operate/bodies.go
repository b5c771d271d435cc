package operate

import (
	"github.com/watermill-spillway/spillway/redrive/campaigns"
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

// LeasesBody names letters whose leases are broken.
type LeasesBody struct {
	ReasonBody
	// Seqs are the letters, at most 1,000. Required.
	Seqs []int64 `json:"seqs"`
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
	ProblemBusy        = "urn:spillway:busy"           // too many streams: try again
	ProblemAccess      = "urn:spillway:access-unknown" // the service does not know who asks: try again
	ProblemUnavailable = "urn:spillway:unavailable"    // the database does not answer: try again
	ProblemTimeout     = "urn:spillway:timeout"        // it takes too long: choose fewer letters, or try again
	ProblemFailed      = "urn:spillway:failed"         // a fault of the server
)

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }
