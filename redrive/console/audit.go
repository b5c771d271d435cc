package console

import (
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// eventsAtOnce is how many events a page of the record has.
const eventsAtOnce = 100

// auditView is the record: who did what to which letter, when and why.
type auditView struct {
	By, Since, Until, Message, Letter, RedriveID string
	Kinds                                        []kindOption
	Events                                       []auditLine
	Next, JSON, CSV                              string
	Details                                      bool // the person may see the details of edits
	Action                                       string
}

type kindOption struct {
	Kind, Name string
	Selected   bool
}

type auditLine struct {
	Number                               int64
	At                                   time.Time
	By, What, Reason, MessageID, Details string
	Letter, Redrive, RedriveID           string // addresses, and the id of a campaign
}

// record is which entries of the record a request asks for.
func (r *request) record() (operate.Record, error) {
	of, err := operate.ParseRecord(r.query, r.now)
	of.Filter.NewestFirst = true
	return of, err
}

func (c *console) audit(r *request) (answer, error) {
	of, err := r.record()
	if err != nil {
		return answer{}, err
	}
	view := auditView{
		By: r.query.Get("by"), Since: r.query.Get("since"), Until: r.query.Get("until"), Message: r.query.Get("id"),
		Letter: r.query.Get("letter"), RedriveID: r.query.Get("redrive-id"), Details: r.person.Role >= Look,
		Action: r.link("audit", nil),
	}
	for _, name := range inside.EventKinds {
		kind := letters.EventKind(name)
		view.Kinds = append(view.Kinds, kindOption{name, operate.EventWords(kind), slices.Contains(of.Filter.Kinds, kind)})
	}
	of.Filter.Limit = eventsAtOnce + 1
	events, err := c.desk.Audit(r.http.Context(), r.who(""), of)
	if err != nil {
		return answer{}, err
	}
	q := url.Values{}
	for _, name := range operate.RecordFields[:7] {
		if some := operate.Filled(r.query[name]); len(some) > 0 {
			q[name] = some
		}
	}
	view.JSON, view.CSV = r.link("audit/"+auditJSON, q), r.link("audit/"+auditCSV, q)
	if of.Seq == 0 && len(events) > eventsAtOnce {
		events = events[:eventsAtOnce]
		q.Set("after", strconv.FormatInt(events[len(events)-1].Number, 10))
		view.Next = r.link("audit", q)
	}
	for _, e := range events {
		view.Events = append(view.Events, c.auditLine(r, e))
	}
	return answer{page: "audit", title: "Audit", view: view}, nil
}

func (c *console) auditLine(r *request, e letters.Event) auditLine {
	line := auditLine{Number: e.Number, At: e.At, By: e.By, What: operate.EventWords(e.Kind), Reason: e.Reason,
		MessageID: e.MessageID, RedriveID: e.RedriveID, Details: e.Detail}
	if e.Seq > 0 {
		line.Letter = r.link("letters/"+id(e.Seq), nil)
	}
	switch {
	case discards.Made(e.RedriveID):
		line.Redrive = r.link(discards.path(e.RedriveID), nil)
	case restores.Made(e.RedriveID):
		line.Redrive = r.link(restores.path(e.RedriveID), nil)
	case e.RedriveID != "" && !operate.IsRequest(e.RedriveID):
		line.Redrive = r.link("campaigns/"+url.PathEscape(e.RedriveID), nil)
	}
	return line
}
