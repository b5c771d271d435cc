package console

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/console/internal/frames"
	"github.com/watermill-spillway/spillway/redrive/console/internal/payload"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// letter tells the story of one letter: what failed, what is in it, and what became of it.
func (c *console) letter(r *request) (answer, error) {
	l, err := c.oneLetter(r)
	if err != nil {
		return answer{}, err
	}
	v := letterPage{
		L: l, Look: r.person.Role >= Look, Closed: c.desk.Masks.Text(l.WhyClosed()),
		CauseLink: r.link("letters", operate.FilterValues(letters.Filter{Causes: []string{l.Cause},
			Statuses: letters.Statuses()})),
		Edits: l.Status != letters.StatusDiscarded && l.Status != letters.StatusErased, Base: r.base,
		Folded: frames.Fold(c.desk.Masks.Text(l.Failure.Stack)), Command: "redrive show " + id(l.Seq) + " --json",
		Curl: curl(r),
	}
	this := operate.Selection{Seqs: []int64{l.Seq}}.Values()
	if l.Status == letters.StatusWaiting {
		v.Redrive = r.link("redrive", this)
	}
	if slices.Contains(discards.From, l.Status) {
		v.Discard = r.link(discards.Name, this)
	}
	if slices.Contains(restores.From, l.Status) {
		v.Restore = r.link(restores.Name, this)
	}
	v.Keys, v.Metadata = c.metadata(l, v.Look)
	if v.Look && l.Closed == nil && l.Status != letters.StatusErased {
		v.Payload = c.payloadOf(l, payload.Kind(r.query.Get("view")))
	}
	events, err := c.desk.Store.History(r.http.Context(), l.Seq)
	if err == nil {
		v.Line, v.Earlier = timeLine(r, l.Letter, events)
		v.Others, err = c.others(r, l)
	}
	if err == nil {
		var seq int64
		v.Behind, seq, err = c.desk.Behind(r.http.Context(), l.Origin)
		v.BehindLink = r.link("sequences/"+id(seq), nil)
	}
	return answer{page: "letter", title: say("Letter %s", strconv.FormatInt(l.Seq, 10)), view: v}, err
}

type letterPage struct {
	L         operate.Letter
	Look      bool // whether the person may see payload and metadata
	Closed    string
	CauseLink string
	Base      string
	Redrive   string // the page that redrives this letter alone, if it waits
	Discard   string
	Restore   string // the page that lets this letter wait again, if it is discarded
	Edits     bool
	Payload   *payloadView
	Line      []entry
	Earlier   int // moments that are left out
	Others    []otherLetter
	Metadata  []pair
	Keys      int // of the metadata
	Folded    []frames.Group
	Command   string
	Curl      string
	// Behind is how many messages of the letter's key wait in order.
	Behind     int
	BehindLink string
}

// oneLetter returns the letter that the address names.
func (c *console) oneLetter(r *request) (l operate.Letter, err error) {
	seq, err := strconv.ParseInt(r.http.PathValue("seq"), 10, 64)
	if err != nil || seq <= 0 {
		return l, noPage()
	}
	return c.desk.Letter(r.http.Context(), seq)
}

// otherLetter is another letter of the same message: a redriven message that failed again has one more.
type otherLetter struct {
	Seq, Link, Status string
	LeasedBy          string
	Here              bool
}

const shownOthers = 50

// others returns the letters of the message, with the one that is shown. Of a message without an id there is one.
func (c *console) others(r *request, l operate.Letter) (all []otherLetter, err error) {
	if l.Original.UUID == "" {
		return nil, nil
	}
	heads, err := c.desk.Store.Heads(r.http.Context(),
		letters.Filter{IDs: []string{l.Original.UUID}, Statuses: letters.Statuses(), Limit: shownOthers})
	for _, h := range heads {
		all = append(all, otherLetter{id(h.Seq), r.link("letters/"+id(h.Seq), nil), operate.StatusWords(h.Status),
			h.LeasedBy, h.Seq == l.Seq})
	}
	return all, err
}

// curl returns the line of a shell that fetches the letter, as far as the address is known here. A name of a host that
// a shell or a person would read as something else is left out.
func curl(r *request) string {
	scheme, host := "http", r.http.Host
	if r.http.TLS != nil || r.http.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	for _, char := range host {
		if !(char >= 'a' && char <= 'z' || char >= 'A' && char <= 'Z' || char >= '0' && char <= '9' || char == '.' ||
			char == ':' || char == '-' || char == '[' || char == ']') {
			return ""
		}
	}
	return "curl --fail --remote-name --remote-header-name '" + scheme + "://" + host + pathSeen(r.http) + "/json'"
}

// pathSeen is the path that the browser asked for, with what a proxy on this machine added. It has no quotes: they come
// escaped.
func pathSeen(hr *http.Request) string {
	path := hr.RequestURI
	for i, char := range path {
		if char == '?' || char == '#' || char == '\'' {
			return path[:i]
		}
	}
	return path
}
