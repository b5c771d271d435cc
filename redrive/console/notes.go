package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
)

// noteForm changes what persons say of a cause.
type noteForm struct {
	Action          string // its address
	Fields          []formField
	Seen            string // the note that the person saw
	Problem, Detail string
	Back            string
}

// noteFields are the fields of the form, but for the reason and that which says what the person saw.
var noteFields = []formField{
	{Name: "owner", Label: "Owner", Most: operate.MaxOwner}, {Name: "note", Label: "Note", Most: operate.MaxNote},
	{Name: "link", Label: "Link to a ticket", Most: operate.MaxLink, Mode: "url"},
	{Name: "snooze", Label: "Snoozed until, in UTC", Hint: "4h, 2d or 2026-03-01T08:00"},
}

// noteValues are a note as the form has it.
func noteValues(n inside.CauseNote) url.Values {
	v := url.Values{"owner": {n.Owner}, "note": {n.Note}, "link": {n.Link}, "snooze": {""},
		fieldSeen: {n.NotedAt.UTC().Format(time.RFC3339Nano) + " " + n.SnoozedAt.UTC().Format(time.RFC3339Nano)}}
	if n.Snoozed {
		v.Set("snooze", n.SnoozedUntil.UTC().Format("2006-01-02T15:04"))
	}
	return v
}

// noteForm returns the form of a cause, with values of a note or typed ones.
func (c *console) noteForm(r *request, cause string, values url.Values, p problem) *noteForm {
	f := &noteForm{Action: r.link("causes/"+url.PathEscape(cause), nil), Seen: values.Get(fieldSeen), Problem: p.text,
		Detail: p.detail, Back: r.link("letters", url.Values{"cause": {cause}})}
	for _, one := range noteFields {
		one.Value, one.Wrong = values.Get(one.Name), p.fields[one.Name]
		one.First = one.Wrong != ""
		f.Fields = append(f.Fields, one)
	}
	f.Fields = append(f.Fields, reasonField(values.Get("reason"), p.fields["reason"], "INC-7"))
	return f
}

// noteCause changes what persons say of a cause: what the form has otherwise than the note that the person saw.
func (c *console) noteCause(r *request) (answer, error) {
	typed, err := r.form()
	if err != nil {
		return answer{}, err
	}
	cause, reason := r.HTTP.PathValue("cause"), strings.TrimSpace(typed.Get("reason"))
	again := func(p problem) (answer, error) {
		return answer{status: p.status, page: "cause", title: "Work on a cause", view: c.noteForm(r, cause, typed, p)}, nil
	}
	if wrong := wrongReason(reason); wrong != "" {
		return again(problem{status: http.StatusBadRequest, fields: map[string]string{"reason": wrong}})
	}
	err = c.changeNote(r.HTTP.Context(), r, cause, typed, reason)
	wrong := (*operate.Wrong)(nil)
	switch {
	case err == nil:
		return answer{to: r.link("letters", url.Values{"cause": {cause}})}, nil
	case errors.Is(err, inside.ErrNoCause):
		return answer{}, notFound("No letter of the service ever had this cause.")
	case errors.Is(err, inside.ErrNoteChanged):
		return again(problem{status: http.StatusConflict, text: "Another person changed the note meanwhile, and nothing was changed. Look again."})
	case errors.As(err, &wrong) && wrong.Field != "":
		name := strings.TrimSuffix(wrong.Field, "d_until")
		return again(problem{status: http.StatusBadRequest, fields: map[string]string{name: "It " + wrong.Why + "."}})
	}
	return again(c.problemOf(r, err))
}

func (c *console) changeNote(ctx context.Context, r *request, cause string, typed url.Values, reason string) error {
	notes, err := c.desk.Notes(ctx, cause)
	if err != nil {
		return err
	}
	note := notes[cause]
	is := noteValues(note)
	if typed.Get(fieldSeen) != is.Get(fieldSeen) {
		return inside.ErrNoteChanged
	}
	change := inside.CauseChange{Seen: &note}
	for name, field := range map[string]**string{"owner": &change.Owner, "note": &change.Note, "link": &change.Link} {
		if text := strings.TrimSpace(typed.Get(name)); text != is.Get(name) {
			*field = &text
		}
	}
	if text := strings.TrimSpace(typed.Get("snooze")); text != is.Get("snooze") {
		until, err := operate.Begin("snooze", text, r.Now)
		if err != nil {
			return err
		}
		change.SnoozedUntil = &until
	}
	_, err = c.desk.ChangeCause(ctx, r.who(reason), cause, change)
	return err
}
