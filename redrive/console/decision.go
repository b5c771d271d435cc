package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/operate"
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
	// what the pages say. A %s is a number of letters.
	Title, Intro, number, uncounted, DoneTitle, Done, SoFar, Step string
	states, none, partly, unknown                                 string // why it is not done
}

var discards = &decision{
	Name: "discard", to: letters.StatusDiscarded,
	from:  []letters.Status{letters.StatusWaiting, letters.StatusRefused, letters.StatusQuarantined},
	Title: "Discard",
	Intro: "Discarded letters stay in the store, with your name and reason, and no redrive takes them. You can " +
		"restore " +
		"them.",
	number: "Discard %s letter|Discard %s letters", uncounted: "Discard all that match (not counted)",
	DoneTitle: "Discarded",
	Done:      "%s letter is discarded.|%s letters are discarded.",
	SoFar:     "%s letter is discarded so far.|%s letters are discarded so far.",
	Step:      "%s letter was discarded in this part.|%s letters were discarded in this part.",
	states: "Letters that were redriven, discarded or erased are not discarded. Choose letters that wait, were " +
		"refused " +
		"or are in quarantine.",
	none:    "None of these letters can be discarded any more.",
	partly:  "%s letter was discarded before that.|%s letters were discarded before that.",
	unknown: "No letter was discarded here.",
}

var restores = &decision{
	Name: "restore", to: letters.StatusWaiting, from: []letters.Status{letters.StatusDiscarded},
	Title:  "Restore",
	Intro:  "Letters that are restored wait again, with your name and reason. Then they can be redriven.",
	number: "Restore %s letter|Restore %s letters", uncounted: "Restore all that match (not counted)",
	DoneTitle: "Restored",
	Done:      "%s letter that was restored waits.|%s letters that were restored wait.",
	SoFar:     "%s letter is restored so far.|%s letters are restored so far.",
	Step:      "%s letter was restored in this part.|%s letters were restored in this part.",
	states:    "None of these letters is discarded. Choose discarded letters.",
	none:      "None of these letters is discarded any more.",
	partly:    "%s letter was restored before that.|%s letters were restored before that.",
	unknown:   "No letter was restored here.",
}

// Button is what the button of the decision says: how many letters it takes, or that it is not known.
func (d *decision) Button(n number) string {
	if !n.Known() {
		return d.uncounted
	}
	return say(d.number, n.N())
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
func (r *request) toDecide(d *decision, q map[string][]string) (s operate.Selection, err error) {
	if s, err = r.selection(q); err != nil {
		return s, err
	}
	var some bool
	if s, some = s.Only(d.from); !some {
		return s, badInput(d.states)
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
		return answer{}, badForm()
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
		if now := c.chosen(r, s); now.Known() && now.N() > s.Number {
			return c.decisionPage(r, d, s, d.newKey(), reason,
				problem{status: http.StatusConflict, text: say(moreMatch, now.N())})
		}
	}
	n, cut, err := c.markChosen(r, s, d.to, letters.Act{By: r.person.Name, Reason: reason, RedriveID: key})
	switch {
	case cut:
		return c.decisionStep(r, d, s, key, reason, n), nil
	case err != nil:
		p := c.problemOf(r, err)
		if n > 0 {
			p.text = say(d.partly, n) + " " + p.text
		}
		return c.decisionPage(r, d, s, key, reason, p)
	case n == 0 && len(done) == 0:
		return c.decisionPage(r, d, s, key, reason,
			problem{status: http.StatusConflict, text: d.none, happened: c.happened(r, s)})
	}
	return answer{to: r.exactLink(d.path(key), s.Values())}, nil
}

// wrongReason says why a reason cannot be one.
func wrongReason(reason string) string {
	switch {
	case reason == "":
		return "The reason is missing. Say why, for those who read the record later."
	case len(reason) > maxName || strings.ContainsRune(reason, 0):
		return say("The reason may have at most %s byte.|The reason may have at most %s bytes.", maxName)
	}
	return ""
}

// markChosen marks the letters of a selection for as long as one step takes. It returns how many, also with an error.
// The step was cut if its time was over before all were marked, and some were.
func (c *Console) markChosen(r *request, s operate.Selection, status letters.Status,
	act letters.Act) (n int, cut bool, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), c.step)
	defer cancel()
	if len(s.Seqs) == 0 {
		n, err = c.store.MarkAll(ctx, s.Filter, status, act)
	}
	for _, seq := range s.Seqs {
		var one int
		one, err = c.store.MarkAll(ctx, oneLetter(seq, s.Filter.Statuses), status, act)
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
func (c *Console) decisionPage(r *request, d *decision, s operate.Selection, key, reason string, p problem) (answer, error) {
	view := decisionView{
		D: d, Key: key, Reason: reason, WrongReason: p.fields["reason"], Problem: joined(p.text, p.happened),
		Detail: p.detail, Action: r.link(d.Name, nil), Letters: r.link("letters", s.Values()),
		Exact: r.exactLink(d.Name, s.Values()),
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
	if len(s.Seqs) == 0 && view.Number.Known() {
		s.Number = max(1, view.Number.N())
	}
	view.Hidden = hidden(s.Values())
	return answer{status: p.status, page: "decision", title: d.Title, view: view}, nil
}

// sampleOf are the first letters of a selection.
func (c *Console) sampleOf(ctx context.Context, s operate.Selection, most int) (heads []letters.Head, err error) {
	if len(s.Seqs) == 0 {
		f := s.Filter
		f.Limit = most
		return c.store.Heads(ctx, f)
	}
	for _, seq := range s.Seqs[:min(len(s.Seqs), most)] {
		some, err := c.store.Heads(ctx, oneLetter(seq, s.Filter.Statuses))
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
