package inside

import (
	"errors"
	"strings"
	"time"
)

// CauseNote is what persons say of a cause. What it lacks is empty.
type CauseNote struct {
	// Note says what is known of the cause.
	Note string `json:"note,omitempty"`
	// Owner is who works on it.
	Owner string `json:"owner,omitempty"`
	// Link is an address of http or https, such as that of a ticket.
	Link string `json:"link,omitempty"`
	// NotedBy is who changed the note, the owner or the link last.
	NotedBy string    `json:"noted_by,omitempty"`
	NotedAt time.Time `json:"noted_at,omitzero"`
	// Known reports that all letters of the cause that wait came after that: it came again.
	Known bool `json:"known,omitempty"`
	// Snoozed reports that persons need not look at the cause now.
	Snoozed      bool      `json:"snoozed,omitempty"`
	SnoozedUntil time.Time `json:"snoozed_until,omitzero"`
	// SnoozedBy is who snoozed the cause, or ended that, last.
	SnoozedBy string    `json:"snoozed_by,omitempty"`
	SnoozedAt time.Time `json:"snoozed_at,omitzero"`
	// WokenAt is when the cause woke before SnoozedUntil, as it grew.
	WokenAt time.Time `json:"woken_at,omitzero"`
}

// Words are a note in a line, or nothing.
func (n CauseNote) Words() string {
	var parts []string
	for _, part := range []struct{ before, text string }{{"owner ", n.Owner}, {"", n.Note}, {"", n.Link}} {
		if part.text != "" {
			parts = append(parts, part.before+part.text)
		}
	}
	text := strings.Join(parts, "; ")
	if n.Known && text != "" {
		text = "known: " + text
	}
	if n.Snoozed {
		text = strings.TrimSuffix("snoozed until "+n.SnoozedUntil.UTC().Format(time.RFC3339)+"; "+text, "; ")
	}
	return text
}

// AnySnoozed reports whether a cause is snoozed.
func AnySnoozed(notes map[string]CauseNote) bool {
	for _, n := range notes {
		if n.Snoozed {
			return true
		}
	}
	return false
}

// Grown reports whether the cause woke as it grew, in the time of its snooze.
func (n CauseNote) Grown() bool { return !n.WokenAt.IsZero() && n.SnoozedUntil.After(time.Now()) }

// Grew reports whether a snoozed cause wakes: more than SnoozeFactor times as many letters arrived in the last hour as
// in the hour before the snooze, and at least SnoozeLeast.
func Grew(now, before int) bool { return now > SnoozeFactor*before && now >= SnoozeLeast }

// What wakes a snoozed cause, how long a snooze may be, and how long a note is kept of a cause of which no letter waits.
const (
	SnoozeFactor = 4
	SnoozeLeast  = 10
	NoteKept     = 90 * 24 * time.Hour
)

// CauseChange says what changes of a CauseNote. What is nil stays, and what is empty is removed.
type CauseChange struct {
	Note, Owner, Link *string
	// SnoozedUntil snoozes the cause. The zero time ends a snooze.
	SnoozedUntil *time.Time
	// Seen is the note that the person saw. If there is another one meanwhile, nothing changes. Default: none is compared.
	Seen *CauseNote
}

// Detail says what a change does with a cause, for the record.
func (c CauseChange) Detail(cause string) string {
	var all []string
	for _, field := range []struct {
		name  string
		value *string
	}{{"owner", c.Owner}, {"note", c.Note}, {"link", c.Link}} {
		switch {
		case field.value == nil:
		case *field.value == "":
			all = append(all, "no "+field.name)
		default:
			all = append(all, field.name+" "+*field.value)
		}
	}
	switch until := c.SnoozedUntil; {
	case until == nil:
	case until.IsZero():
		all = append(all, "not snoozed")
	default:
		all = append(all, "snoozed until "+until.UTC().Format(time.RFC3339))
	}
	return "cause " + cause + ": " + strings.Join(all, "; ")
}

// ErrNoCause is the error of a cause that no letter of the service ever had.
var ErrNoCause = errors.New("no letter of the service ever had this cause")

// ErrNoteChanged is the error of a change of a note that is not as the person saw it.
var ErrNoteChanged = errors.New("the note of the cause was changed meanwhile: look again")
