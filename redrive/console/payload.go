package console

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/operate"
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

// viewNames are the names of the ways to show a payload.
var viewNames = map[payload.Kind]string{"tree": "JSON", "text": "Text", "hex": "Hex"}

type tab struct {
	Name, Link string
	Here       bool
}

// payloadOf returns a view of the masked payload. Of a long payload only the beginning is looked at, and whether
// anything of the rest is masked is not known.
func (c *console) payloadOf(l operate.Letter, want payload.Kind) *payloadView {
	p := []byte(l.Original.Payload)
	looked := p[:min(len(p), payload.Looked)]
	masked := c.desk.Masks.Payload(looked)
	v := &payloadView{View: payload.Of(masked, want, len(looked) == len(p)), Size: len(p)}
	v.Masked = string(masked) != string(looked) || len(looked) < len(p)
	for _, kind := range v.Kinds {
		v.Tabs = append(v.Tabs, tab{viewNames[kind],
			"?" + url.Values{"view": {string(kind)}}.Encode() + "#payload", kind == v.Kind})
	}
	return v
}

// download sends the exact bytes of a payload, if none of them is masked. For the others there is downloadUnmasked.
func (c *console) download(r *request) (answer, error) {
	l, err := c.withPayload(r)
	if err != nil {
		return answer{}, err
	}
	if c.desk.Hides(l.Original.Payload) {
		return answer{}, &fault{status: http.StatusForbidden, title: "Not allowed",
			text: "The payload has values that are masked. With the right to operate, the page of the letter downloads it, " +
				"with a reason on record."}
	}
	return exactBytes(l), nil
}

// downloadUnmasked sends the exact bytes of a payload, with what is masked on pages. It is on record, as the command's
// --unmasked.
func (c *console) downloadUnmasked(r *request) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	reason := form.Get("reason")
	if reason == "" || len(reason) > maxName || !utf8.ValidString(reason) {
		return answer{}, badInput(say("Say why the bytes are needed without masks, in at most %s byte.|Say why the "+
			"bytes are needed without masks, in at most %s bytes.", maxName))
	}
	l, err := c.withPayload(r)
	if err != nil {
		return answer{}, err
	}
	if err := c.desk.Show(r.http.Context(), r.who(reason), l.Seq); err != nil {
		return answer{}, err
	}
	return exactBytes(l), nil
}

func exactBytes(l operate.Letter) answer {
	p := l.Original.Payload
	return answer{file: &file{
		kind: "application/octet-stream", name: nameOf(l, ".bin"), size: int64(len(p)),
		write: func(w io.Writer) error { _, err := w.Write(p); return err },
	}}
}

// withPayload returns the letter that the address names, with a payload that can be read.
func (c *console) withPayload(r *request) (operate.Letter, error) {
	l, err := c.oneLetter(r)
	switch {
	case err != nil:
		return l, err
	case l.Closed != nil:
		return l, &fault{status: http.StatusConflict, title: "The letter is sealed", text: "The payload cannot be " +
			"opened here.",
			detail: c.desk.Masks.Text(l.WhyClosed()), cause: l.Closed}
	case l.Status == letters.StatusErased:
		return l, &fault{status: http.StatusGone, title: "The payload is erased", text: payloadErased}
	}
	return l, nil
}

// export sends a letter as JSON, masked as the page is.
func (c *console) export(r *request) (answer, error) {
	l, err := c.oneLetter(r)
	if err != nil {
		return answer{}, err
	}
	events, err := c.desk.Store.History(r.http.Context(), l.Seq)
	if err != nil {
		return answer{}, err
	}
	body, err := json.MarshalIndent(c.desk.Data(r.who(""), l, events), "", "  ")
	if err != nil {
		return answer{}, err
	}
	return answer{file: &file{
		kind: "application/json", name: nameOf(l, ".json"), size: int64(len(body) + 1),
		write: func(w io.Writer) error { _, err := w.Write(append(body, '\n')); return err },
	}}, nil
}
