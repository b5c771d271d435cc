package inside

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/privacy"
)

// Summary counts the campaigns of a service.
type Summary[State comparable] struct {
	// States has the number of campaigns in each state.
	States map[State]int `json:"states"`
	// Stopped is the number of paused campaigns that stopped themselves, because too many letters failed again, and
	// wait for Resume.
	Stopped int `json:"stopped"`
	// Blocked is the number of causes that are blocked for a standing policy.
	Blocked int `json:"blocked"`
}

// What is on record of a campaign: the kinds of CampaignEvent.
const (
	CampaignStarted         = "started"
	CampaignApproved        = "approved"
	CampaignRan             = "ran"
	CampaignHeld            = "held for approval"
	CampaignPaused          = "paused"
	CampaignResumed         = "resumed"
	CampaignCancelled       = "cancelled"
	CampaignRateSet         = "rate set"
	CampaignCanaryPublished = "canary published"
	CampaignFinished        = "finished"
	CampaignPurged          = "letters purged"
	// CampaignLeft says that a worker cannot do the campaign, and why. Another worker may be able to. Each reason is on
	// record once.
	CampaignLeft = "left to other workers"
	// CampaignWaits says that a campaign waits for its turn: more campaigns have letters due than a worker works on at
	// the same time.
	CampaignWaits = "waits for its turn"
)

// CampaignEvent is one thing that was done with a campaign.
type CampaignEvent struct {
	// Seq orders events.
	Seq int64 `json:"seq"`
	// At is by the database's clock.
	At   time.Time `json:"at"`
	Kind string    `json:"what"`
	// By and Reason are those of the campaigns.Act.
	By     string `json:"by"`
	Reason string `json:"reason"`
	// Details has numbers, such as the rate that was set.
	Details string `json:"details,omitempty"`
}

// Details are what a page shows of a campaigns.Plan.
type Details struct {
	// Causes are the letters by what failed, the most first, at most 100.
	Causes []PlannedCause `json:"causes"`
	// Ages are the letters by the time since their first failure, the youngest first.
	Ages []PlannedAge `json:"ages"`
	// Targets are the letters by the topic that they would go to, the most first, at most 100.
	Targets []TopicCount `json:"targets"`
	// Sample are letters, at most campaigns.Samples of them, with what the edit would change.
	Sample []PlannedLetter `json:"sample"`
}

// PlannedCause counts the letters of one cause. Its texts are cut after 200 characters.
type PlannedCause struct {
	Topic   string         `json:"topic"`
	Handler string         `json:"handler"`
	Class   classify.Class `json:"class"`
	Reason  string         `json:"reason"`
	Type    string         `json:"type"`
	// Description is that of the last letter.
	Description string `json:"description"`
	Letters     int    `json:"letters"`
}

// PlannedAge counts the letters whose first failure is at most UpTo ago, and longer ago than the one before. UpTo 0 is
// any time.
type PlannedAge struct {
	UpTo    timing.Duration `json:"up_to"`
	Letters int             `json:"letters"`
}

// PlannedLetter is a letter of the sample.
type PlannedLetter struct {
	Seq         int64     `json:"seq"`
	ID          string    `json:"id"`
	Topic       string    `json:"topic"`
	Handler     string    `json:"handler"`
	Description string    `json:"description"`
	FirstFailed time.Time `json:"first_failed"`
	// Edited is what the edit does to the letter. It is nil without an edit.
	Edited *Diff `json:"edited,omitempty"`
}

// Diff is what an edit does to one message, as it is: Masked returns what may be shown of it.
type Diff struct {
	// Refused says why the edit does not fit. Then nothing else is set.
	Refused string `json:"refused,omitempty"`
	// Before and After are the payloads, if they differ. They hold 64 KiB each at most: Cut reports whether there is
	// more.
	Before []byte `json:"before,omitempty"`
	After  []byte `json:"after,omitempty"`
	Cut    bool   `json:"cut,omitempty"`
	// Metadata are the keys that change, in their order.
	Metadata []KeyDiff `json:"metadata,omitempty"`
	// Withheld says why Masked left out Before and After, although they differ.
	Withheld string `json:"withheld,omitempty"`
	// Mask is how Masked masks it: the edit is done to the masked message.
	Mask func(*privacy.Redactor) *Diff `json:"-"`
}

// Masked returns the difference as it may be shown, or nil.
func (d *Diff) Masked(r *privacy.Redactor) *Diff {
	if d == nil {
		return nil
	}
	return d.Mask(r)
}

// EditText returns a campaigns.Edit as JSON, as the record has it.
func EditText(edit any) string {
	text, err := json.Marshal(edit)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// KeyDiff is a metadata key that an edit changes. A nil value says that the key is not there.
type KeyDiff struct {
	Key    string  `json:"key"`
	Before *string `json:"before"`
	After  *string `json:"after"`
}

// Behind are letters that a campaign did not redrive, for one reason.
type Behind struct {
	// Outcome is refused, failed or gone, as the counts of the campaign are named.
	Outcome string `json:"outcome"`
	// Why says why, such as the topic that is not allowed. It is empty if that is not on record, or was purged.
	Why     string `json:"why,omitempty"`
	Letters int    `json:"letters"`
}

// Forgotten is what Forget did, or would do.
type Forgotten struct {
	// Texts is the number of campaigns and events of campaigns that said something.
	Texts int
	// Open are the ids of campaigns that go on saying it: they are still selecting, or have it in an edit and have not
	// ended. Cancel them, or wait for their end, and call Forget again.
	Open []string
}

// ErrNoPolicy is the error of a policy that the service does not have, or of a cause that was never blocked for it.
var ErrNoPolicy = errors.New("there is no such policy, or the cause was never blocked for it: redrive policies shows all")

// Policies are the standing policies of a service.
type Policies struct {
	// Frozen is the freeze of all policies, or nil.
	Frozen   *Stop    `json:"frozen,omitempty"`
	Policies []Policy `json:"policies"`
}

// Policy is a standing policy that a worker has, or had.
type Policy struct {
	Name string `json:"name"`
	// Rule is what the policy says, in words.
	Rule string `json:"rule"`
	// SeenAt is when a worker had it last, to the minute.
	SeenAt time.Time `json:"seen_at"`
	// Today is the number of its campaigns of the last 24 hours.
	Today int `json:"today"`
	// Frozen is the freeze of this policy, or nil.
	Frozen *Stop `json:"frozen,omitempty"`
	// Blocked are the causes that it does not touch until a person releases them.
	Blocked []Stop `json:"blocked,omitempty"`
}

// Stop is a freeze, or a cause that is blocked.
type Stop struct {
	Cause  string    `json:"cause,omitempty"`
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	// Note is what persons say of the cause, in a line.
	Note string `json:"note,omitempty"`
}

// ErrKeyReused is the error of a request whose key is on record for another request.
var ErrKeyReused = errors.New("the key was used for another request")
