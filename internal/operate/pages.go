package operate

import (
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/redrive/erasure"
)

// What the API answers, where it is more than one of the data. A list has the cursor of its next page in Next.

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

// OutcomesData is what became of the letters of a campaign.
type OutcomesData struct {
	Outcomes []OutcomeData   `json:"outcomes"`
	Behind   []inside.Behind `json:"left_behind,omitempty"`
	// CameBack are the causes of those that came back dead and wait.
	CameBack []CauseData `json:"came_back,omitempty"`
	// Slow reports that they could not be counted in time.
	Slow bool `json:"slow,omitempty"`
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
	ID     string `json:"id"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	At     string `json:"at"`
	// Letters are those that nothing has changed since. It is missing if they could not be counted in time.
	Letters *int `json:"letters,omitempty"`
	// Complete is false if time was over before all letters were done: send the request again, with the same key.
	Complete bool `json:"complete"`
}

// SequencesData are keys whose messages wait in order.
type SequencesData struct {
	Sequences []sequence.Parked `json:"sequences"`
	// Cut reports that there may be more.
	Cut bool `json:"cut,omitempty"`
}

// SequenceData is a key, and the messages that wait, the first ones.
type SequenceData struct {
	sequence.Parked
	Waiting []ParkedData `json:"waiting"`
}

// ParkedData is a message that waits, and its failure, if it has one.
type ParkedData struct {
	sequence.Message
	Class       string `json:"class,omitempty"`
	Description string `json:"description,omitempty"`
	Attempts    int    `json:"attempts,omitempty"`
	// FirstFailedAt and LastFailedAt are the times of the first and the latest of the attempts.
	FirstFailedAt string `json:"first_failed_at,omitempty"`
	LastFailedAt  string `json:"last_failed_at,omitempty"`
}

// BreakersData are the handlers whose messages are held.
type BreakersData struct {
	Breakers []breaker.Status `json:"breakers"`
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

// LeasesData are the letters whose leases were broken.
type LeasesData struct {
	Broken []int64 `json:"broken"`
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

// ErasureData is what is on record of an erasure.
type ErasureData struct {
	ID     string `json:"id"`
	By     string `json:"by"`
	Reason string `json:"reason"`
	At     string `json:"at"`
	// Selector is the hash of what was looked for.
	Selector string `json:"selector"`
	// Did says what the latest request did, in words.
	Did      string `json:"did,omitempty"`
	Complete bool   `json:"complete"`
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
	OldestFailedAt string `json:"oldest_failed_at,omitempty"`
	// Campaigns are the numbers of campaigns by their state.
	Campaigns map[string]int `json:"campaigns"`
	// Stopped is the number of campaigns that stopped themselves and wait for a person.
	Stopped int `json:"stopped"`
	// Held is the number of handlers whose messages are held.
	Held int `json:"held"`
}
