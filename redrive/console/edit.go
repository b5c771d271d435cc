package console

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// editView is the page that edits one letter and redrives it.
type editView struct {
	Seq             int64
	ID              string
	Letter          string // its address
	Key, Version    string
	Reason          string
	Payload         string
	Decoded         string // the media type of the payload, if it is decoded
	NoPayload       string // why the payload cannot be edited
	Set, Unset      formField
	Masked          bool // the form would show what is masked: the person must say why
	Difference      *operate.Difference
	Ready           bool // the difference is shown, and can be redriven
	Target          string
	LeftOut         []leftOutLine
	WrongReason     string
	Problem, Detail string
	Action          string
}

func (c *console) editForm(r *request) (answer, error) {
	l, err := c.editedLetter(r)
	if err != nil {
		return answer{}, err
	}
	return c.editPage(r, l, nil, problem{})
}

// editedLetter is the letter of the address, opened.
func (c *console) editedLetter(r *request) (letters.Letter, error) {
	l, err := c.oneLetter(r)
	if err == nil {
		err = l.Closed
	}
	return l.Letter, err
}

// edit goes from the form to the difference, and from there to a campaign of one letter.
func (c *console) edit(r *request) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	l, err := c.editedLetter(r)
	if err != nil {
		if c.explain(r, err).status != http.StatusServiceUnavailable {
			return answer{}, err
		}
		return c.editAgain(r, form, c.problemOf(r, err))
	}
	reason := strings.TrimSpace(form.Get("reason"))
	switch do := form.Get("do"); {
	case do == "show" && wrongReason(reason) != "":
		return c.editPage(r, l, nil,
			problem{status: http.StatusBadRequest, fields: map[string]string{"reason": wrongReason(reason)}})
	case do == "show":
		if err := c.desk.Show(r.HTTP.Context(), r.who(reason), l.Seq); err != nil {
			return answer{}, err
		}
		return c.editPage(r, l, c.editedText(r, l).form(), problem{})
	case form.Get("version") != operate.VersionOf(l) && !(do == "start" && c.begun(r, form.Get("key"))):
		return c.editPage(r, l, form, problem{status: http.StatusConflict, text: c.whatChanged(l)})
	case do == "start" && wrongReason(reason) != "":
		return c.editPage(r, l, form,
			problem{status: http.StatusBadRequest, fields: map[string]string{"reason": wrongReason(reason)}})
	case do == "start":
		return c.redriveEdited(r, l, form, reason)
	}
	return c.editPage(r, l, form, problem{})
}

// begun reports whether a form was sent before.
func (c *console) begun(r *request, key string) bool {
	_, err := c.desk.Campaigns.Get(r.HTTP.Context(), key)
	return err == nil
}

// redriveEdited starts a campaign of one letter.
func (c *console) redriveEdited(r *request, l letters.Letter, form url.Values, reason string) (answer, error) {
	e, _, wrong := c.editOf(r, l, c.editedText(r, l), form)
	if wrong != "" {
		return c.editPage(r, l, form, problem{status: http.StatusBadRequest, text: wrong})
	}
	started, late, err := c.desk.BeginEdited(r.HTTP.Context(), r.who(reason), l, form.Get("version"),
		campaigns.Request{ID: form.Get("key"), Edit: e})
	changed := (*operate.Changed)(nil)
	switch {
	case errors.As(err, &changed):
		return c.editPage(r, l, form, problem{status: http.StatusConflict, text: c.whatChanged(l)})
	case errors.Is(err, campaigns.ErrNoLetters):
		form.Set("key", watermill.NewUUID())
		return c.editPage(r, l, form,
			problem{status: http.StatusConflict, text: "The letter cannot be redriven now.",
				leftOut: c.leftOut(r, started.LeftOut)})
	case errors.Is(err, inside.ErrKeyReused):
		form.Set("key", watermill.NewUUID())
		return c.editPage(r, l, form, problem{status: http.StatusConflict, text: sentBefore})
	case err != nil:
		return c.editPage(r, l, form, c.problemOf(r, err))
	case late != nil:
		c.log(r, late)
	}
	return answer{to: r.link("campaigns/"+started.ID, nil)}, nil
}

// editPage shows the form: of the letter as it is, or as it was typed. Of a letter that has masked values it shows
// nothing that is not in the form that was sent: the person has seen that, and the record has it.
func (c *console) editPage(r *request, l letters.Letter, form url.Values, p problem) (answer, error) {
	view := editView{
		Seq: l.Seq, ID: l.Original.UUID, Letter: r.link("letters/"+id(l.Seq), nil), Version: operate.VersionOf(l),
		Key: form.Get("key"), Reason: form.Get("reason"), Problem: p.text, Detail: p.detail,
		LeftOut: p.leftOut, Action: r.link("letters/"+id(l.Seq)+"/edit", nil), Target: l.Origin.Topic,
		WrongReason: p.fields["reason"],
	}
	if view.Key == "" {
		view.Key = watermill.NewUUID()
	}
	text := c.editedText(r, l)
	if err := checkEditable([]byte(text.is)); err != nil && form.Get("decoded") == text.mediaType {
		view.NoPayload = say("The payload cannot be edited here: %s. It stays as it is, byte for byte.", err.Error())
	} else if view.Payload, view.Decoded = text.is, text.mediaType; form.Has("payload") {
		view.Payload, view.Decoded = form.Get("payload"), form.Get("decoded")
	}
	view.metadata(form)
	if view.NoPayload == "" && !form.Has("payload") && c.desk.Hides(l.Original.Payload, text.decoded) {
		view.Masked, view.Payload = true, ""
	}
	// the difference was seen: send it again
	view.Ready = p.status == http.StatusServiceUnavailable && form.Get("do") == "start"
	if form.Get("do") != "" && (p.status == 0 || p.status == http.StatusBadRequest) {
		if err := c.editDifference(r, l, text, form, &view); err != nil {
			failed := c.problemOf(r, err)
			p.status, view.Problem, view.Detail = failed.status, failed.text, failed.detail
		} else if view.Problem != "" && p.status == 0 {
			p.status = http.StatusBadRequest
		}
	}
	return answer{status: p.status, page: "edit", title: "Edit and redrive", view: view}, nil
}

// editDifference shows what the edit does.
func (c *console) editDifference(r *request, l letters.Letter, text editedText, form url.Values,
	view *editView) error {
	e, reads, wrong := c.editOf(r, l, text, form)
	if wrong != "" {
		if view.Problem == "" {
			view.Problem = wrong
		}
		return nil
	}
	request := campaigns.Request{Seqs: []int64{l.Seq}, Edit: e}
	request.Filter.Statuses = []letters.Status{l.Status}
	plan, _, err := c.desk.Plan(r.HTTP.Context(), r.who(""), request, 0)
	if err != nil {
		return err
	}
	view.LeftOut = c.leftOut(r, plan.LeftOut)
	if len(plan.Sample) == 1 {
		view.Difference, view.Target = operate.DifferenceOf(plan.Sample[0].Edited, c.desk.Masks), plan.Sample[0].Topic
		view.Ready = view.Difference != nil && view.Difference.Refused == ""
		if reads != nil && view.Ready {
			view.Difference.Reads(text.decoded, reads)
		}
	}
	return nil
}

// editAgain shows what was typed while the database is unavailable.
func (c *console) editAgain(r *request, form url.Values, p problem) (answer, error) {
	seq, _ := strconv.ParseInt(r.HTTP.PathValue("seq"), 10, 64)
	view := editView{
		Seq: seq, Letter: r.link("letters/"+id(seq), nil), Version: form.Get("version"), Key: form.Get("key"),
		Reason: form.Get("reason"), Payload: form.Get("payload"), Decoded: form.Get("decoded"), Problem: p.text, Detail: p.detail,
		Action: r.link("letters/"+id(seq)+"/edit", nil), Ready: form.Get("do") == "start",
	}
	view.metadata(form)
	return answer{status: p.status, page: "edit", title: "Edit and redrive", view: view}, nil
}

// metadata are the fields of what changes in the metadata.
func (v *editView) metadata(form url.Values) {
	v.Set, v.Unset = settingOf("set").field(form.Get("set"), ""), settingOf("unset").field(form.Get("unset"), "")
}

// whatChanged says who did what to a letter since the form was made.
func (c *console) whatChanged(l letters.Letter) string {
	if l.MarkedAt.IsZero() {
		return "The letter has changed since you opened it. It arrived again. What you typed is below."
	}
	return say("The letter has changed since you opened it: it is %s, by %s, for this reason: %s. What you typed is "+
		"below.", operate.StatusWords(l.Status), c.plain(l.Marked.By), c.plain(l.Marked.Reason))
}

// editedText is the payload as the form has it: decoded, if it can be encoded again.
type editedText struct {
	is        string
	mediaType string // of what is decoded
	decoded   *operate.Decoded
}

func (c *console) editedText(r *request, l letters.Letter) editedText {
	decoded := c.desk.Decoded(r.HTTP.Context(), l)
	if decoded.Read() && c.desk.Codec.Encodes() {
		return editedText{decoded.Clear, decoded.MediaType, decoded}
	}
	return editedText{is: string(l.Original.Payload), decoded: decoded}
}

// form is the form of a letter whose payload the person may see.
func (t editedText) form() url.Values { return url.Values{"payload": {t.is}, "decoded": {t.mediaType}} }

// encode sets the payload of an edit to what was typed, and returns how it reads.
func (c *console) encode(r *request, l letters.Letter, e *campaigns.Edit, typed string) (*operate.Decoded, string) {
	payload, reads, err := c.desk.Encode(r.HTTP.Context(), l, typed)
	switch {
	case err != nil:
		return nil, say("The payload is %s, and cannot be encoded: %s. Correct the text, or take back what you changed.",
			c.plain(boundedtext.Text(typed, 100)), c.plain(err.Error()))
	case bytes.Equal(payload, l.Original.Payload):
		return nil, ""
	case utf8.Valid(payload):
		text := string(payload)
		e.Payload = &text
	default:
		e.PayloadBytes = payload
	}
	return reads, ""
}

// editOf is the edit that makes the letter what was typed. What was not changed is not part of it. reads is how a
// payload reads that was encoded.
func (c *console) editOf(r *request, l letters.Letter, text editedText,
	form url.Values) (e *campaigns.Edit, reads *operate.Decoded, wrong string) {
	e, err := operate.ParseEdit(operate.EditFields{Set: lines(form.Get("set")), Unset: lines(form.Get("unset"))})
	if err != nil {
		return nil, nil, say(badEdit, err.Error())
	}
	if e == nil {
		e = &campaigns.Edit{}
	}
	if form.Has("payload") && form.Get("decoded") != text.mediaType {
		return nil, nil, "The payload is not decoded as it was when you opened the form. Keep what you typed, and open the " +
			"form again."
	}
	if checkEditable([]byte(text.is)) == nil && form.Has("payload") {
		typed, err := typedBack([]byte(text.is), form.Get("payload"))
		switch {
		case err != nil:
			return nil, nil, say("The payload cannot be what you typed: %s.", err.Error())
		case typed == text.is:
		case text.mediaType == "":
			e.Payload = &typed
		default:
			if reads, wrong = c.encode(r, l, e, typed); wrong != "" {
				return nil, nil, wrong
			}
		}
	}
	if e.Payload == nil && len(e.PayloadBytes)+len(e.Set)+len(e.Unset) == 0 {
		return nil, nil, "Nothing is changed yet. To redrive the letter as it is, use Redrive."
	}
	if err := e.Validate(); err != nil {
		return nil, nil, say(badEdit, err.Error())
	}
	return e, reads, ""
}
