package console

import "github.com/watermill-spillway/spillway/internal/operate"

// stepView is how far a decision came in the time of one request. Its form goes on. With a script it goes on by itself,
// because the page is the answer to a form: no address leads to it.
type stepView struct {
	D      *decision
	Now    int            // letters of this step
	Done   operate.Number // letters of all steps, for a decision that has a record
	Left   operate.Number
	Hidden []field
	Key    string
	Reason string
	Action string
	Stop   string // the address of what was done so far
}

// decisionStep is the answer to a form whose letters are more than one request can do. If none is left, only the time
// was over.
func (c *Console) decisionStep(r *request, d *decision, s operate.Selection, key, reason string, n int) answer {
	view := stepView{
		D: d, Now: n, Done: c.numberOf(r, d.Of(key)), Left: c.chosen(r, s), Key: key, Reason: reason,
		Action: r.link(d.Name, nil), Stop: r.link(d.path(key), s.Values()), Hidden: hidden(s.Values()),
	}
	if view.Left.None() {
		return answer{to: r.exactLink(d.path(key), s.Values())}
	}
	return answer{page: "step", title: d.Title, view: view}
}

// All is how many letters the selection had when the first step began, if that is known.
func (v stepView) All() operate.Number {
	if !v.Done.Known() || !v.Left.Known() {
		return operate.Number{}
	}
	return operate.Exactly(v.Done.N() + v.Left.N())
}
