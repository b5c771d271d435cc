package console

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/redrive/console/internal/payload"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// payloadView is a payload as the page of a letter shows it.
type payloadView struct {
	payload.View
	Size   int
	Masked bool
	Tabs   []tab
}

type tab struct {
	Name, Link string
	Here       bool
}

// payloadOf returns a view of the masked payload. Of a long payload only the beginning is looked at, and whether
// anything of the rest is masked is not known.
func (c *Console) payloadOf(l openedLetter, want payload.Kind) *payloadView {
	p := []byte(l.Original.Payload)
	looked := p[:min(len(p), payload.Looked)]
	masked := c.config.Privacy.Payload(looked)
	v := &payloadView{View: payload.Of(masked, want, len(looked) == len(p)), Size: len(p)}
	v.Masked = string(masked) != string(looked) || len(looked) < len(p)
	for _, kind := range v.Kinds {
		v.Tabs = append(v.Tabs, tab{text("letter.view." + string(kind)),
			"?" + url.Values{"view": {string(kind)}}.Encode() + "#payload", kind == v.Kind})
	}
	return v
}

// download sends the exact bytes of a payload, if none of them is masked. For the others there is downloadUnmasked.
func (c *Console) download(r *request) (answer, error) {
	l, err := c.withPayload(r)
	if err != nil {
		return answer{}, err
	}
	if c.masks(l.Original.Payload) {
		return answer{}, &fault{status: http.StatusForbidden, title: text("error.forbidden"),
			text: text("letter.download.masked")}
	}
	return bytesOf(l), nil
}

// downloadUnmasked sends the exact bytes of a payload, with what is masked on pages. It is on record, as the command's
// --unmasked.
func (c *Console) downloadUnmasked(r *request) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	reason := form.Get("reason")
	if reason == "" || len(reason) > maxName || !utf8.ValidString(reason) {
		return answer{}, badInput(text("letter.download.reason", maxName))
	}
	l, err := c.withPayload(r)
	if err != nil {
		return answer{}, err
	}
	if _, err := c.store.Record(r.Context(), nil, letters.EventShown, letters.Act{By: r.person.Name, Reason: reason},
		l.Seq); err != nil {
		return answer{}, err
	}
	return bytesOf(l), nil
}

func bytesOf(l openedLetter) answer {
	p := l.Original.Payload
	return answer{file: &file{
		kind: "application/octet-stream", name: nameOf(l, ".bin"), size: int64(len(p)),
		write: func(w io.Writer) error { _, err := w.Write(p); return err },
	}}
}

// withPayload returns the letter that the address names, with a payload that can be read.
func (c *Console) withPayload(r *request) (openedLetter, error) {
	l, err := c.oneLetter(r)
	switch {
	case err != nil:
		return l, err
	case l.closed != nil:
		return l, &fault{status: http.StatusConflict, title: text("letter.sealed"), text: text("letter.sealed.text"),
			detail: c.config.Privacy.Text(says(l.closed)), cause: l.closed}
	case l.Status == letters.StatusErased:
		return l, &fault{status: http.StatusGone, title: text("letter.erased"), text: text("letter.erased.text")}
	}
	return l, nil
}

// export sends a letter as JSON, masked as the page is.
func (c *Console) export(r *request) (answer, error) {
	l, err := c.oneLetter(r)
	if err != nil {
		return answer{}, err
	}
	body, err := json.MarshalIndent(c.exportOf(l, r.person.Role >= Look), "", "  ")
	if err != nil {
		return answer{}, err
	}
	return answer{file: &file{
		kind: "application/json", name: nameOf(l, ".json"), size: int64(len(body) + 1),
		write: func(w io.Writer) error { _, err := w.Write(append(body, '\n')); return err },
	}}, nil
}

// validText reports whether bytes come back as they are from a string of JSON.
func validText(p []byte) bool { return utf8.Valid(p) }
