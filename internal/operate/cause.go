package operate

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate/printable"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// CauseNoteData is what persons say of a cause.
type CauseNoteData struct {
	Cause string `json:"cause"`
	inside.CauseNote
}

// CauseBody changes what persons say of a cause. What is missing stays.
type CauseBody struct {
	ReasonBody
	// Note says what is known of the cause, in a line of at most 1,000 bytes. An empty one is removed, as are owner and
	// link.
	Note *string `json:"note,omitempty"`
	// Owner is who works on it, in at most 100 bytes.
	Owner *string `json:"owner,omitempty"`
	// Link is an address of http or https, such as that of a ticket, of at most 500 bytes.
	Link *string `json:"link,omitempty"`
	// SnoozedUntil is until when persons need not look at the cause, at most 90 days from now. It wakes earlier if more
	// than 4 times as many letters arrive in an hour as in the hour before the snooze, and at least 10.
	SnoozedUntil *time.Time `json:"snoozed_until,omitempty"`
	// Unsnooze ends a snooze.
	Unsnooze bool `json:"unsnooze,omitempty"`
}

// causeBy is what the record's ids of such changes begin with.
const causeBy = "cause-"

// What the texts of a note may have, in bytes.
const (
	MaxNote  = 1000
	MaxOwner = 100
	MaxLink  = 500
)

// ChangeCause changes what persons say of a cause, which begins as given. What was done under the person's key is not
// done again.
func (d *Desk) ChangeCause(ctx context.Context, who Person, begin string, c inside.CauseChange) (v CauseNoteData, err error) {
	if err := who.allowed(Act); err != nil {
		return v, err
	}
	if err := checkCause(c); err != nil {
		return v, err
	}
	found, err := hidden.Of(d.Store).CausesBegin(ctx, begin, 2)
	switch {
	case err != nil:
		return v, err
	case len(found) == 0:
		return v, inside.ErrNoCause
	case len(found) > 1:
		return v, wrong("cause", "is the beginning of several: give more of it")
	}
	v.Cause = found[0]
	act := who.once(causeBy)
	act.Detail = c.Detail(v.Cause)
	done, err := d.did(ctx, act)
	switch until := c.SnoozedUntil; {
	case err != nil || done:
	case until != nil && !until.IsZero() && (time.Until(*until) <= 0 || time.Until(*until) > inside.NoteKept):
		err = wrongValue("snoozed_until", until.Format(time.RFC3339), "use a time to come, within 90 days")
	default:
		_, err = hidden.Of(d.Store).ChangeNote(ctx, v.Cause, c, act)
	}
	if err != nil {
		return v, err
	}
	notes, err := d.Notes(ctx, v.Cause)
	v.CauseNote = notes[v.Cause]
	return v, err
}

// checkCause returns an error for what cannot be said of a cause. Others see it in terminals and in browsers.
func checkCause(c inside.CauseChange) error {
	nothing := c.SnoozedUntil == nil
	for _, field := range []struct {
		name  string
		value *string
		most  int
	}{{"note", c.Note, MaxNote}, {"owner", c.Owner, MaxOwner}, {"link", c.Link, MaxLink}} {
		switch text := field.value; {
		case text == nil:
			continue
		case len(*text) > field.most:
			return wrong(field.name, "has %d bytes: it may have %d", len(*text), field.most)
		case printable.Text(*text) != *text:
			return wrongValue(field.name, printable.Text(*text), "use one line of printable text")
		}
		nothing = false
	}
	if nothing {
		return wrong("", "Nothing changes: give a note, an owner, a link, or a snooze.")
	}
	if link := c.Link; link != nil && *link != "" {
		u, err := url.Parse(*link)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Contains(*link, " ") {
			return wrongValue("link", *link, "use an address of http or https, without a name or a password")
		}
	}
	return nil
}

// Notes returns what persons say of causes, or of all, as it may be shown.
func (d *Desk) Notes(ctx context.Context, causes ...string) (map[string]inside.CauseNote, error) {
	notes, err := hidden.Of(d.Store).Notes(ctx, causes...)
	for cause, note := range notes {
		d.mask(&note.Note, &note.Owner, &note.Link)
		notes[cause] = note
	}
	return notes, err
}

// Noted are causes as they may be shown, with what persons say of them.
func (d *Desk) Noted(ctx context.Context, groups []letters.Group) (all []CauseData, err error) {
	hashes := make([]string, len(groups))
	for i, g := range groups {
		hashes[i] = g.Cause
	}
	if len(groups) == 0 {
		return nil, nil
	}
	notes, err := d.Notes(ctx, hashes...)
	for _, g := range groups {
		one := d.Cause(g)
		one.CauseNote = notes[g.Cause]
		all = append(all, one)
	}
	return all, err
}

// NotesOf are what persons say of the causes that a campaign names.
func (d *Desk) NotesOf(ctx context.Context, c campaigns.Campaign) (all []CauseNoteData, err error) {
	if len(c.Request.Filter.Causes) == 0 {
		return nil, nil
	}
	notes, err := d.Notes(ctx, c.Request.Filter.Causes...)
	for _, cause := range c.Request.Filter.Causes {
		if note := notes[cause]; note.Words() != "" {
			all = append(all, CauseNoteData{cause, note})
		}
	}
	return all, err
}

// noteStops says of causes that are blocked what persons say of them.
func (d *Desk) noteStops(ctx context.Context, policies []inside.Policy) error {
	var causes []string
	for _, p := range policies {
		for _, stop := range p.Blocked {
			causes = append(causes, stop.Cause)
		}
	}
	if len(causes) == 0 {
		return nil
	}
	notes, err := d.Notes(ctx, causes...)
	for _, p := range policies {
		for i := range p.Blocked {
			p.Blocked[i].Note = notes[p.Blocked[i].Cause].Words()
		}
	}
	return err
}
