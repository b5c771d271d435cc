package console

import (
	"errors"
	"net/http"

	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// problem is why a form is shown again, with what was typed.
type problem struct {
	status       int
	text, detail string
	leftOut      []leftOutLine
	fields       map[string]string // what is wrong with fields, by their names
	happened     string            // who did what before
}

// problemOf says why an action failed. Forms can be sent again: their actions happen once.
func (c *console) problemOf(r *request, err error) problem {
	if errors.Is(err, campaigns.ErrRequest) {
		return problem{status: http.StatusBadRequest, text: c.desk.Masks.Text(boundedtext.Error(err, privacy.MaxText))}
	}
	f := c.explain(r, err)
	p := problem{status: f.status, text: f.title + ". " + f.text, detail: f.detail}
	if f.status >= http.StatusInternalServerError {
		c.log(r, err)
		if r.http.Method == http.MethodPost {
			p.text += " " + "What you typed is below. You can send it again: it is done once."
		}
	}
	return p
}
