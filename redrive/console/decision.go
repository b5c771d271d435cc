package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// stepTime is how long one request discards letters, or restores them. The page says how far it came, and goes on.
	stepTime = 15 * time.Second
	// decisionSample is how many letters the page shows.
	decisionSample = 10
)

// decision is what a person decides about letters: to discard them, or to restore discarded ones.
type decision struct {
	Name string           // of its page. The ids of its records begin with it, so that none is the id of a campaign.
	from []letters.Status // the states of letters that it takes
	to   letters.Status
}

var (
	discards = &decision{"discard",
		[]letters.Status{letters.StatusWaiting, letters.StatusRefused, letters.StatusQuarantined}, letters.StatusDiscarded}
	restores = &decision{"restore", []letters.Status{letters.StatusDiscarded}, letters.StatusWaiting}
)

// Says returns a text of the decision.
func (d *decision) Says(word string, args ...any) string {
	return text("decide."+d.Name+"."+word, args...)
}

// Button is what the button of the decision says: how many letters it takes, or that it is not known.
func (d *decision) Button(n number) string {
	if !n.Known() {
		return d.Says("uncounted")
	}
	return d.Says("number", n.N())
}

// newKey returns the id of a record that the decision will have.
func (d *decision) newKey() string { return d.Name + "-" + watermill.NewUUID() }

// isKey reports whether a text is the id of a record of the decision.
func (d *decision) isKey(key string) bool {
	rest, ok := strings.CutPrefix(key, d.Name+"-")
	return ok && len(rest) == 36 && !strings.ContainsFunc(rest, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'f')
	})
}

// path is the page of a record.
func (d *decision) path(key string) string { return d.Name + "s/" + key }

// record chooses the letters of a record that nothing has changed since.
func (d *decision) record(key string) letters.Filter {
	return letters.Filter{RedriveIDs: []string{key}, Statuses: []letters.Status{d.to}}
}

// takes reports whether the decision takes some of the letters that a filter chooses, and whether it takes all of them.
func (d *decision) takes(statuses []letters.Status) (some, all bool) { return among(statuses, d.from) }

// among reports whether some, and whether all of the states of a filter are among others. Without states a filter
// chooses what waits.
func among(statuses, others []letters.Status) (some, all bool) {
	if len(statuses) == 0 {
		statuses = []letters.Status{letters.StatusWaiting}
	}
	all = true
	for _, status := range statuses {
		is := slices.Contains(others, status)
		some, all = some || is, all && is
	}
	return some, all
}

// decisionView is the page between a selection and a decision about it.
type decisionView struct {
	D               *decision
	Hidden          []field
	Key, Reason     string
	WrongReason     string
	Number          number
	Exact           string // the address of the page that counts
	Held            held
	Sample          []sampleLine
	Problem, Detail string
	Action, Letters string
}

func (c *Console) discardForm(r *request) (answer, error) { return c.decisionForm(r, discards) }
func (c *Console) discard(r *request) (answer, error)     { return c.decide(r, discards) }
func (c *Console) restoreForm(r *request) (answer, error) { return c.decisionForm(r, restores) }
func (c *Console) restore(r *request) (answer, error)     { return c.decide(r, restores) }

func (c *Console) decisionForm(r *request, d *decision) (answer, error) {
	s, err := r.toDecide(d, r.query)
	if err != nil {
		return answer{}, err
	}
	return c.decisionPage(r, d, s, d.newKey(), "", problem{})
}

// toDecide is a selection with letters that a decision takes.
func (r *request) toDecide(d *decision, q map[string][]string) (s selection, err error) {
	if s, err = r.selection(q); err != nil {
		return s, err
	}
	some, all := d.takes(s.filter.Statuses)
	switch {
	case !some:
		return s, badInput(d.Says("states"))
	case !all:
		s.filter.Statuses = slices.DeleteFunc(s.filter.Statuses, func(status letters.Status) bool {
			return !slices.Contains(d.from, status)
		})
	}
	return s, nil
}

// decide marks the letters. Sent twice with the same key, the second finds none of them, and goes to what the first
// did.
func (c *Console) decide(r *request, d *decision) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	s, err := r.toDecide(d, form)
	if err != nil {
		return answer{}, err
	}
	key, reason := form.Get("key"), strings.TrimSpace(form.Get("reason"))
	if !d.isKey(key) {
		return answer{}, badInput(text("error.form"))
	}
	if wrong := wrongReason(reason); wrong != "" {
		return c.decisionPage(r, d, s, key, reason,
			problem{status: http.StatusBadRequest, fields: map[string]string{"reason": wrong}})
	}
	done, err := c.recorded(r, key)
	if err != nil {
		return c.decisionPage(r, d, s, key, reason, c.problemOf(r, err))
	}
	if len(done) == 0 {
		if now := c.chosen(r, s); now.Known() && now.N() > s.number {
			return c.decisionPage(r, d, s, d.newKey(), reason,
				problem{status: http.StatusConflict, text: text("decide.more", now.N())})
		}
	}
	n, cut, err := c.markChosen(r, s, d.to, letters.Act{By: r.person.Name, Reason: reason, RedriveID: key})
	switch {
	case cut:
		return c.decisionStep(r, d, s, key, reason, n), nil
	case err != nil:
		p := c.problemOf(r, err)
		if n > 0 {
			p.text = d.Says("partly", n) + " " + p.text
		}
		return c.decisionPage(r, d, s, key, reason, p)
	case n == 0 && len(done) == 0:
		return c.decisionPage(r, d, s, key, reason,
			problem{status: http.StatusConflict, text: d.Says("none"), happened: c.happened(r, s)})
	}
	return answer{to: r.exactLink(d.path(key), s.values())}, nil
}

// wrongReason says why a reason cannot be one.
func wrongReason(reason string) string {
	switch {
	case reason == "":
		return text("act.noreason")
	case len(reason) > maxName || strings.ContainsRune(reason, 0):
		return text("act.longreason", maxName)
	}
	return ""
}

// markChosen marks the letters of a selection for as long as one step takes. It returns how many, also with an error.
// The step was cut if its time was over before all were marked, and some were.
func (c *Console) markChosen(r *request, s selection, status letters.Status,
	act letters.Act) (n int, cut bool, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), c.step)
	defer cancel()
	if len(s.seqs) == 0 {
		n, err = c.store.MarkAll(ctx, s.filter, status, act)
	}
	for _, seq := range s.seqs {
		var one int
		one, err = c.store.MarkAll(ctx, oneLetter(seq, s.filter.Statuses), status, act)
		if n += one; err != nil {
			break
		}
	}
	return n, err != nil && n > 0 && ctx.Err() != nil && r.Context().Err() == nil, err
}

func oneLetter(seq int64, statuses []letters.Status) letters.Filter {
	return letters.Filter{After: seq - 1, MaxSeq: seq, Statuses: statuses}
}

// decisionPage shows the form with what was typed.
func (c *Console) decisionPage(r *request, d *decision, s selection, key, reason string, p problem) (answer, error) {
	view := decisionView{
		D: d, Key: key, Reason: reason, WrongReason: p.fields["reason"], Problem: joined(p.text, p.happened),
		Detail: p.detail, Action: r.link(d.Name, nil), Letters: r.link("letters", s.values()),
		Exact: r.exactLink(d.Name, s.values()),
	}
	if p.status != http.StatusServiceUnavailable {
		view.Number = c.chosen(r, s)
		var err error
		var heads []letters.Head
		if d == discards {
			view.Held, err = c.heldOf(r, s)
		}
		if err == nil {
			heads, err = c.sampleOf(r.Context(), s, decisionSample)
		}
		if err != nil {
			if p.status == 0 {
				return answer{}, err
			}
			c.log(r, err)
		}
		for _, h := range heads {
			view.Sample = append(view.Sample, sampleLine{
				Link: r.link("letters/"+id(h.Seq), nil), ID: h.MessageID, Topic: h.Topic, Handler: h.Handler,
				Description: h.Description, FirstFailed: h.FirstFailedAt,
			})
		}
	}
	if len(s.seqs) == 0 && view.Number.Known() {
		s.number = max(1, view.Number.N())
	}
	view.Hidden = hidden(s.values())
	return answer{status: p.status, page: "decision", title: d.Says("title"), view: view}, nil
}

// sampleOf are the first letters of a selection.
func (c *Console) sampleOf(ctx context.Context, s selection, most int) (heads []letters.Head, err error) {
	if len(s.seqs) == 0 {
		f := s.filter
		f.Limit = most
		return c.store.Heads(ctx, f)
	}
	for _, seq := range s.seqs[:min(len(s.seqs), most)] {
		some, err := c.store.Heads(ctx, oneLetter(seq, s.filter.Statuses))
		if err != nil {
			return heads, err
		}
		heads = append(heads, some...)
	}
	return heads, nil
}

// recorded is what is on record under a key: the latest event.
func (c *Console) recorded(r *request, key string) ([]letters.Event, error) {
	return c.store.Audit(r.Context(), letters.EventFilter{RedriveIDs: []string{key}, NewestFirst: true, Limit: 1})
}
