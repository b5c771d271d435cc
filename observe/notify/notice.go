package notify

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
)

// Kind is what a notice is about.
type Kind string

const (
	// NewCause says that a letter of a cause arrived, of which none had arrived for a whole Config.Window.
	NewCause Kind = "new_cause"
	// Threshold says that Config.Threshold letters of a cause wait.
	Threshold Kind = "threshold"
	// OldestLetter says that the letter that waits longest is older than Config.OldestAge.
	OldestLetter Kind = "oldest_letter"
	// CampaignStopped says that a campaign stopped itself, because too many letters failed again, or because its topic
	// refused them.
	CampaignStopped Kind = "campaign_stopped"
	// BreakerOpen says that a breaker holds the messages of a handler.
	BreakerOpen Kind = "breaker_open"
	// StoreAway says that a store or a publisher of the channel itself, or the database of the notices, does not
	// answer.
	StoreAway Kind = "store_away"
	// SequenceHeld says that the messages of a key stand until a person decides about the first one. Notice.Subject is
	// the key.
	SequenceHeld Kind = "sequence_held"
	// SequenceLate says that a parked message of a partition is due for more than a minute, and nothing begins it: the
	// partition has no owner, or its handler hangs.
	SequenceLate Kind = "sequence_late"
	// Unplaced says that all publishers refused a letter. Its message was requeued.
	Unplaced Kind = "unplaced"
	// ManyNotices says that more notices of one kind were due than 10 within a minute. Those are counted and
	// not told one by one. Notice.Subject is their kind.
	ManyNotices Kind = "many_notices"
)

// Kinds are all kinds.
var Kinds = []Kind{NewCause, Threshold, OldestLetter, CampaignStopped, BreakerOpen, StoreAway, SequenceHeld,
	SequenceLate, Unplaced, ManyNotices}

// lasts reports whether a kind is of a state, whose end is told.
func lasts(kind string) bool {
	switch Kind(kind) {
	case Threshold, OldestLetter, CampaignStopped, BreakerOpen, StoreAway, SequenceHeld, SequenceLate:
		return true
	}
	return false
}

// Status is what happened to what a notice is about.
type Status string

const (
	// StatusNew is the first notice of a subject.
	StatusNew = Status(ledger.Began)
	// StatusSummary counts what happened since the notice before.
	StatusSummary = Status(ledger.Counted)
	// StatusResolved says that what a StatusNew notice said is over.
	StatusResolved = Status(ledger.Ended)
)

// Notice is what a Sink sends. Its texts come from messages and errors in part. They are redacted, and have no control
// characters and no marks of direction. As JSON it is the body that docs/notices.md describes.
type Notice struct {
	// ID is the same if the notice is sent again: a receiver that keeps IDs can drop the second.
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Status Status `json:"status"`
	// Title is the notice in one line.
	Title string `json:"title"`
	// Service is spillway.Config.Service, and Instance the process that sends.
	Service  string `json:"service,omitempty"`
	Instance string `json:"instance"`
	// Subject is what the notice is about, if that is not a cause or a handler: a store, a campaign, a scope, or a kind
	// of notices.
	Subject string `json:"subject,omitempty"`
	// Cause is the hash of the cause, as letters.Group.Cause has it.
	Cause   string `json:"cause,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Handler string `json:"handler,omitempty"`
	Class   string `json:"class,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Count is how often it happened since the notice before, and Total how often since the StatusNew notice. Of a
	// Threshold both are the number of letters that wait.
	Count int64 `json:"count"`
	Total int64 `json:"total"`
	// First and Last are when it happened first and last, by the clocks of the processes that saw it.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Description says more, in at most 1,000 characters: of a letter the text of its error.
	Description string `json:"description,omitempty"`
	// Link is what Config.Link returned.
	Link string `json:"link,omitempty"`
	// Missed is the number of notices before this one that did not reach the Sink.
	Missed int `json:"missed,omitempty"`
}

// Sink sends a notice. A Sink is called with one notice at a time. It must end with ctx. Its error is logged, and has
// the notice sent again later, for an hour; classify.RetryAfter on the error says when. An error that is marked
// with classify.Permanent gives the notice up at once. A panic is an error.
type Sink func(ctx context.Context, n Notice) error

// title says what happened in a line.
func (n *Notice) title() string {
	at := n.place()
	switch n.Status {
	case StatusSummary:
		return n.summary(at)
	case StatusResolved:
		return "Resolved: " + n.began(at)
	}
	return n.began(at)
}

func (n *Notice) began(at string) string {
	switch n.Kind {
	case NewCause:
		return "Dead letter of a new cause" + at
	case Threshold:
		return fmt.Sprintf("%d dead letters of a cause wait%s", n.Count, at)
	case OldestLetter:
		return "A dead letter waits for too long" + at
	case CampaignStopped:
		return "Campaign " + n.Subject + " stopped itself"
	case BreakerOpen:
		return "The breaker holds messages" + at
	case StoreAway:
		return "Away: " + n.Subject
	case SequenceHeld:
		return "The messages of a key are held" + at
	case SequenceLate:
		return "Parked messages are late" + at
	case Unplaced:
		return "A dead letter could not be placed" + at
	case ManyNotices:
		return fmt.Sprintf("More notices of %s than are told one by one", n.Subject)
	}
	return string(n.Kind) + at
}

func (n *Notice) summary(at string) string {
	switch n.Kind {
	case NewCause:
		return fmt.Sprintf("%d more dead letters of a cause%s", n.Count, at)
	case Unplaced:
		return fmt.Sprintf("%d more dead letters could not be placed%s", n.Count, at)
	case ManyNotices:
		return fmt.Sprintf("%d more events of %s, not told one by one", n.Count, n.Subject)
	}
	return fmt.Sprintf("%d more: %s", n.Count, n.began(at))
}

// place is where it happened: ": topic, handler, reason".
func (n *Notice) place() string {
	var parts []string
	for _, part := range []string{n.Topic, n.Handler, n.Reason} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
