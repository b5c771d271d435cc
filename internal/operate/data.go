package operate

import (
	"context"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// What programs get: JSON by names that stay. Times are RFC 3339 in UTC, and what is empty is left out, apart from
// counts.

// CauseData is a cause for programs.
type CauseData struct {
	Cause           string    `json:"cause"`
	Count           int       `json:"count"`
	Arrived         int       `json:"arrived"`
	LastMinute      int       `json:"last_minute"`
	FirstFailedAt   time.Time `json:"first_failed_at,omitzero"`
	LastFailedAt    time.Time `json:"last_failed_at,omitzero"`
	DeadLetterTopic string    `json:"dead_letter_topic,omitempty"`
	Topic           string    `json:"topic,omitempty"`
	Handler         string    `json:"handler,omitempty"`
	Class           string    `json:"class"`
	Reason          string    `json:"reason,omitempty"`
	Type            string    `json:"type,omitempty"`
	StackHash       string    `json:"stack_hash,omitempty"`
	Example         int64     `json:"example"`
	Description     string    `json:"description,omitempty"`
	inside.CauseNote
}

// DataOfCause is a cause for programs.
func DataOfCause(g letters.Group) CauseData {
	return CauseData{
		Cause: g.Cause, Count: g.Count, Arrived: g.Arrived, LastMinute: g.LastMinute,
		FirstFailedAt: moment(g.FirstFailedAt),
		LastFailedAt:  moment(g.LastFailedAt), DeadLetterTopic: g.DeadLetterTopic, Topic: g.Topic, Handler: g.Handler,
		Class: g.Class.String(), Reason: g.Reason, Type: g.Type, StackHash: g.StackHash, Example: g.Example,
		Description: g.Description,
	}
}

// LetterData is a letter for programs.
type LetterData struct {
	Seq             int64     `json:"seq"`
	Status          string    `json:"status"`
	Seen            int       `json:"seen"`
	StoredAt        time.Time `json:"stored_at,omitzero"`
	ID              string    `json:"id,omitempty"`
	Cause           string    `json:"cause,omitempty"`
	DeadLetterTopic string    `json:"dead_letter_topic,omitempty"`
	Topic           string    `json:"topic,omitempty"`
	Handler         string    `json:"handler,omitempty"`
	Class           string    `json:"class"`
	Reason          string    `json:"reason,omitempty"`
	Type            string    `json:"type,omitempty"`
	Description     string    `json:"description,omitempty"`
	StackHash       string    `json:"stack_hash,omitempty"`
	FirstFailedAt   time.Time `json:"first_failed_at,omitzero"`
	LastFailedAt    time.Time `json:"last_failed_at,omitzero"`
	MarkedAt        time.Time `json:"marked_at,omitzero"`
	MarkedBy        string    `json:"marked_by,omitempty"`
	MarkedReason    string    `json:"marked_reason,omitempty"`
	RedriveID       string    `json:"redrive_id,omitempty"`
	LeasedBy        string    `json:"leased_by,omitempty"`
	LeasedUntil     time.Time `json:"leased_until,omitzero"`
	Bytes           int       `json:"bytes"`
	SealKey         string    `json:"seal_key,omitempty"`
}

// DataOfHead is a letter without its content for programs.
func DataOfHead(h letters.Head) LetterData {
	return LetterData{
		Seq: h.Seq, Status: string(h.Status), Seen: h.Seen, StoredAt: moment(h.StoredAt), ID: h.MessageID,
		Cause:           h.Cause,
		DeadLetterTopic: h.DeadLetterTopic, Topic: h.Topic, Handler: h.Handler, Class: h.Class.String(),
		Reason: h.Reason,
		Type:   h.Type, Description: h.Description, StackHash: h.StackHash, FirstFailedAt: moment(h.FirstFailedAt),
		LastFailedAt: moment(h.LastFailedAt), MarkedAt: moment(h.MarkedAt), MarkedBy: h.Marked.By,
		MarkedReason: h.Marked.Reason, RedriveID: h.Marked.RedriveID, LeasedBy: h.LeasedBy,
		LeasedUntil: moment(h.LeasedUntil),
		Bytes:       h.Size, SealKey: h.SealKey,
	}
}

// DataOf is a letter without its content for programs.
func DataOf(l letters.Letter) LetterData {
	return LetterData{
		Seq: l.Seq, Status: string(l.Status), Seen: l.Seen, StoredAt: moment(l.StoredAt), ID: l.Original.UUID,
		Cause:           l.Cause,
		DeadLetterTopic: l.DeadLetterTopic, Topic: l.Origin.Topic, Handler: l.Origin.Handler,
		Class:  l.Failure.Class.String(),
		Reason: l.Failure.Reason, Type: l.Failure.Type, Description: l.Failure.Description,
		StackHash:     l.Failure.StackHash,
		FirstFailedAt: moment(l.Failure.FirstFailedAt), LastFailedAt: moment(l.Failure.LastFailedAt),
		MarkedAt: moment(l.MarkedAt), MarkedBy: l.Marked.By, MarkedReason: l.Marked.Reason,
		RedriveID: l.Marked.RedriveID,
		Bytes:     l.Size, SealKey: l.SealKey,
	}
}

// WholeData is a letter with its payload.
type WholeData struct {
	LetterData
	Attempts   int               `json:"attempts"`
	Redrives   int               `json:"redrives"`
	RedrivenBy string            `json:"redriven_by,omitempty"` // the last time, as redriven_id is
	RedrivenID string            `json:"redriven_id,omitempty"`
	Partition  string            `json:"partition,omitempty"`
	Offset     string            `json:"offset,omitempty"`
	Key        string            `json:"key,omitempty"`
	Group      string            `json:"group,omitempty"`
	Node       string            `json:"node,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Stack      string            `json:"stack,omitempty"`
	History    []AttemptData     `json:"history,omitempty"`
	Life       []EventData       `json:"life,omitempty"`
	// PayloadBytes is how long the payload is, before masks.
	PayloadBytes int     `json:"payload_bytes,omitempty"`
	Payload      *string `json:"payload,omitempty"`
	PayloadB64   []byte  `json:"payload_b64,omitempty"`
	// Decoded is the payload as a text that a person can read, if the service has a decoder that knows it.
	Decoded *DecodedData `json:"decoded,omitempty"`
	Sealed  string       `json:"sealed,omitempty"`
	Version string       `json:"version,omitempty"` // of the letter, for an edit
}

// AttemptData is an attempt for programs.
type AttemptData struct {
	At    time.Time `json:"at,omitzero"`
	Class string    `json:"class"`
	Error string    `json:"error,omitempty"`
}

// WholeDataOf is a letter with its content and its events for programs. Its payload is carried apart.
func WholeDataOf(l letters.Letter, events []letters.Event) WholeData {
	v := WholeData{
		LetterData: DataOf(l), Attempts: l.Failure.Attempts, Redrives: l.Redrive.Count, RedrivenBy: l.Redrive.By,
		RedrivenID: l.Redrive.ID, Partition: l.Origin.Partition,
		Offset: l.Origin.Offset, Key: string(l.Origin.Key), Group: l.Origin.ConsumerGroup, Node: l.Failure.Node,
		Metadata: l.Original.Metadata, Stack: l.Failure.Stack,
	}
	for _, attempt := range l.Failure.History {
		v.History = append(v.History, AttemptData{moment(attempt.At), attempt.Class.String(), attempt.Error})
	}
	for _, e := range events {
		v.Life = append(v.Life, DataOfEvent(e))
	}
	return v
}

// EventData is an entry of the record for programs.
type EventData struct {
	Number    int64     `json:"number,omitempty"`
	At        time.Time `json:"at"`
	Kind      string    `json:"kind"`
	Seq       int64     `json:"seq"`
	ID        string    `json:"id,omitempty"`
	By        string    `json:"by,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	RedriveID string    `json:"redrive_id,omitempty"`
	Detail    string    `json:"detail,omitempty"`
}

// DataOfEvent is an entry of the record for programs.
func DataOfEvent(e letters.Event) EventData {
	return EventData{e.Number, moment(e.At), string(e.Kind), e.Seq, e.MessageID, e.By, e.Reason, e.RedriveID, e.Detail}
}

// Carry adds a payload.
func (v *WholeData) Carry(payload []byte) {
	if utf8.Valid(payload) {
		text := string(payload)
		v.Payload = &text
		return
	}
	v.PayloadB64 = payload
}

// Bytes are the payload, if it is carried.
func (v *WholeData) Bytes() []byte {
	if v.Payload != nil {
		return []byte(*v.Payload)
	}
	return v.PayloadB64
}

// Mask lays the masks of the person over what the server has masked, apart from the payload.
func (v *WholeData) Mask(masks *privacy.Redactor) {
	texts := []*string{&v.ID, &v.DeadLetterTopic, &v.Topic, &v.Handler, &v.Reason, &v.Type, &v.Description, &v.MarkedReason,
		&v.Partition, &v.Offset, &v.Key, &v.Group, &v.Node, &v.Stack}
	if v.Decoded != nil {
		texts = append(texts, &v.Decoded.Failed)
	}
	for i := range v.History {
		texts = append(texts, &v.History[i].Error)
	}
	for i := range v.Life {
		e := &v.Life[i]
		e.Detail = maskedDetail(masks, e.Detail)
		texts = append(texts, &e.ID, &e.Reason)
	}
	for _, text := range texts {
		*text = masks.Text(*text)
	}
	for key, value := range v.Metadata {
		v.Metadata[key] = masks.Metadata(key, value)
	}
}

// moment is a time as JSON can have it: in UTC, and none in a year that no calendar has.
func moment(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// Stamp is a time for programs.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Data is a letter for programs as a person may have it: masked, and without values of the message for a person who may
// not look.
func (d *Desk) Data(ctx context.Context, who Person, l Letter, events []letters.Event) WholeData {
	if who.Right < Look { // of a letter that does not open there are the metadata that stayed readable
		original := l.Original.Copy()
		original.Payload, original.Metadata = nil, nil
		l.Original, l.Origin.Key = original, nil
	}
	v := WholeDataOf(l.Letter, d.Events(who, events))
	v.Metadata = maps.Clone(v.Metadata)
	v.Mask(d.Masks)
	v.SealKey, v.Sealed = l.Key, d.Masks.Text(l.WhyClosed())
	if who.Right >= Look && l.Closed == nil && l.Status != letters.StatusErased {
		v.PayloadBytes = l.PayloadBytes
		decoded := d.Decoded(ctx, l.Letter)
		if decoded != nil {
			v.Decoded = &decoded.DecodedData
		}
		if !decoded.hides() {
			v.Carry(d.Masks.Payload(l.Original.Payload))
		}
	}
	return v
}

// What package campaigns has, for programs: how long something takes is text, such as "1h30m". A field here hides the
// one of its name that is embedded.

// RequestData says what a campaign redrives, and how.
type RequestData struct {
	campaigns.Request
	// CanaryWait is how long the campaign waits for what becomes of the canary. Letters that are not heard of by then
	// count as not failed. Default: "1m".
	CanaryWait timing.Duration `json:"canary_wait,omitempty"`
	// ResumeAfter is how long after the publisher refused letters the campaign resumes by itself. The time doubles with
	// each pause, at most tenfold. Default: "0s", the campaign waits for Resume.
	ResumeAfter timing.Duration `json:"resume_after,omitempty"`
}

// DataOfRequest is a request for programs.
func DataOfRequest(r campaigns.Request) RequestData {
	return RequestData{r, timing.Duration(r.CanaryWait), timing.Duration(r.ResumeAfter)}
}

// Plain is the request that programs gave.
func (v RequestData) Plain() campaigns.Request {
	r := v.Request
	r.CanaryWait, r.ResumeAfter = time.Duration(v.CanaryWait), time.Duration(v.ResumeAfter)
	return r
}

// CampaignData is a campaign as it stood when it was read.
type CampaignData struct {
	campaigns.Campaign
	// Request is what was asked for, and the defaults.
	Request RequestData `json:"request"`
	// Remaining is about how long the campaign will still run, at its rate, or without one at its speed so far. It is
	// missing if that is not known.
	Remaining timing.Duration `json:"remaining,omitempty"`
}

// DataOfCampaign is a campaign for programs.
func DataOfCampaign(c campaigns.Campaign) CampaignData {
	return CampaignData{c, DataOfRequest(c.Request), timing.Duration(c.Remaining)}
}

// CampaignRecord is a campaign with its record.
type CampaignRecord struct {
	CampaignData
	// Notes are what persons say of the causes that the campaign names.
	Notes  []CauseNoteData        `json:"notes,omitempty"`
	Behind []inside.Behind        `json:"left_behind,omitempty"`
	Events []inside.CampaignEvent `json:"events"`
}

// PlanData is what a campaign would do.
type PlanData struct {
	DryRun
	// Takes is how long the campaign would run at its rate. It is missing without a rate.
	Takes timing.Duration `json:"takes,omitempty"`
	// Part reports that there may be more letters than the dry run reads.
	Part bool `json:"part,omitempty"`
}

// DataOfPlan is a dry run for programs.
func DataOfPlan(p DryRun, part bool) PlanData { return PlanData{p, timing.Duration(p.Takes), part} }
