package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/operate"
)

const (
	// stepTime is how long one request discards letters, or restores them. The page says how far it came, and goes on.
	stepTime = 15 * time.Second
	// decisionSample is how many letters the page shows.
	decisionSample = 10
)

// decision is what a person decides about letters: to discard them, or to restore discarded ones.
type decision struct {
	operate.Decision
	// what the pages say. A %s is a number of letters.
	Title, Intro, number, uncounted, DoneTitle, Done, SoFar string
	states, none, partly, unknown                           string // why it is not done
}

var discards = &decision{
	Decision: operate.Discard,
	Title:    "Discard",
	Intro: "Discarded letters stay in the store, with your name and reason, and no redrive takes them. You can " +
		"restore " +
		"them.",
	number: "Discard %s letter|Discard %s letters", uncounted: "Discard all that match (not counted)",
	DoneTitle: "Discarded",
	Done:      "%s letter is discarded.|%s letters are discarded.",
	SoFar:     "%s letter is discarded so far.|%s letters are discarded so far.",
	states: "Letters that were redriven, discarded or erased are not discarded. Choose letters that wait, were " +
		"refused " +
		"or are in quarantine.",
	none:    "None of these letters can be discarded any more.",
	partly:  "%s letter was discarded before that.|%s letters were discarded before that.",
	unknown: "No letter was discarded here.",
}

var restores = &decision{
	Decision: operate.Restore,
	Title:    "Restore",
	Intro:    "Letters that are restored wait again, with your name and reason. Then they can be redriven.",
	number:   "Restore %s letter|Restore %s letters", uncounted: "Restore all that match (not counted)",
	DoneTitle: "Restored",
	Done:      "%s letter that was restored waits.|%s letters that were restored wait.",
	SoFar:     "%s letter is restored so far.|%s letters are restored so far.",
	states:    "None of these letters is discarded. Choose discarded letters.",
	none:      "None of these letters is discarded any more.",
	partly:    "%s letter was restored before that.|%s letters were restored before that.",
	unknown:   "No letter was restored here.",
}

// Button is what the button of the decision says: how many letters it takes, or that it is not known.
func (d *decision) Button(n operate.Number) string {
	if !n.Known() {
		return d.uncounted
	}
	return say(d.number, n.N())
}

// path is the page of a record.
func (d *decision) path(key string) string { return d.Name + "s/" + key }

// decisionView is the page between a selection and a decision about it.
type decisionView struct {
	D               *decision
	Hidden          []field
	Key, Reason     string
	WrongReason     string
	Number          operate.Number
	Exact           string // the address of the page that counts
	Sample          []sampleLine
	Problem, Detail string
	Action, Letters string
}

// decisionFormOf makes the route that asks before a decision is carried out.
func decisionFormOf(d *decision) handler {
	return func(c *console, r *request) (answer, error) {
		s, err := r.toDecide(d, r.Query)
		if err != nil {
			return answer{}, err
		}
		return c.decisionPage(r, d, s, d.NewID(), "", problem{})
	}
}

// toDecide is a selection with letters that a decision takes.
func (r *request) toDecide(d *decision, q map[string][]string) (s operate.Selection, err error) {
	if s, err = r.selection(q); err != nil {
		return s, err
	}
	var some bool
	if s, some = s.Only(d.From); !some {
		return s, badInput(d.states)
	}
	return s, nil
}

// decide makes the route that marks the letters. Sent twice with the same key, the second finds none of them, and goes to what the first
// did.
func decide(d *decision) handler {
	return func(c *console, r *request) (answer, error) { return c.decide(r, d) }
}

func (c *console) decide(r *request, d *decision) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	s, err := r.toDecide(d, form)
	if err != nil {
		return answer{}, err
	}
	key, reason := form.Get("key"), strings.TrimSpace(form.Get("reason"))
	if !d.Made(key) {
		return answer{}, badForm()
	}
	if wrong := wrongReason(reason); wrong != "" {
		return c.decisionPage(r, d, s, key, reason,
			problem{status: http.StatusBadRequest, fields: map[string]string{"reason": wrong}})
	}
	n, err := c.carry(r, d, s, key, reason, &s.Number)
	more := (*operate.MoreMatch)(nil)
	switch {
	case errors.As(err, &more):
		return c.decisionPage(r, d, s, d.NewID(), reason,
			problem{status: http.StatusConflict, text: say(moreMatch, more.Now)})
	case errors.Is(err, operate.ErrNothing):
		return c.decisionPage(r, d, s, key, reason,
			problem{status: http.StatusConflict, text: d.none})
	case err != nil:
		p := c.problemOf(r, err)
		if n > 0 {
			p.text = say(d.partly, n) + " " + p.text
		}
		return c.decisionPage(r, d, s, key, reason, p)
	}
	return answer{to: r.exactLink(d.path(key), s.Values())}, nil
}

// wrongReason says why a reason cannot be one.
func wrongReason(reason string) string {
	if wrong := (*operate.Wrong)(nil); errors.As(operate.CheckReason(reason), &wrong) {
		return "The reason " + wrong.Why + "."
	}
	return ""
}

// carry carries out a decision about a selection, for as long as one step takes. The page of what was done goes on.
func (c *console) carry(r *request, d *decision, s operate.Selection, key, reason string, seen *int) (n int, err error) {
	n, _, err = c.desk.Carry(r.HTTP.Context(), r.who(reason), operate.Deciding{What: d.Decision, Selection: s, ID: key,
		TakenUp: true, Seen: seen, Step: c.step, Counting: c.patience(r, careful*c.counting)})
	return n, err
}

// decisionPage shows the form with what was typed.
func (c *console) decisionPage(r *request, d *decision, s operate.Selection, key, reason string, p problem) (answer, error) {
	view := decisionView{
		D: d, Key: key, Reason: reason, WrongReason: p.fields["reason"], Problem: p.text,
		Detail: p.detail, Action: r.link(d.Name, nil), Letters: r.link("letters", s.Values()),
		Exact: r.exactLink(d.Name, s.Values()),
	}
	if p.status != http.StatusServiceUnavailable {
		view.Number = c.chosen(r, s)
		heads, err := c.desk.Sample(r.HTTP.Context(), s, decisionSample)
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
	view.Hidden = hiddenFields(s.Values())
	return answer{status: p.status, page: "decision", title: d.Title, view: view}, nil
}

// The settings that a form begins with. A person sees them, with the reason, and may take them away: a campaign that is
// started in a hurry goes at a rate, and tries some letters first if there are many.
const (
	usualRate   = 20
	fastRate    = 100 // for so many letters that the usual rate would take hours
	usualCanary = 10
	largeCanary = 100 // tells more of a million letters, and is as quickly over
	fewLetters  = 20
)

// carefully is the rate and the canary for n letters.
func carefully(n operate.Number) (rate, canary string) {
	switch {
	case !n.Known(): // counting takes long, so there are many
		return strconv.Itoa(usualRate), strconv.Itoa(largeCanary)
	case n.N() <= fewLetters:
		return strconv.Itoa(usualRate), ""
	}
	return strconv.Itoa(min(max(usualRate, n.N()/3600), fastRate)), strconv.Itoa(min(max(usualCanary, n.N()/100), largeCanary))
}

func newSettings(n operate.Number) campaignForm {
	rate, canary := carefully(n)
	return settingsOf(url.Values{"key": {watermill.NewUUID()}, "rate": {rate}, "canary": {canary}})
}

// plain is a value of a message, or of a person, within a text.
func (c *console) plain(s string) string {
	line, _ := c.shown(s, maxShown)
	return line
}
