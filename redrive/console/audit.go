package console

import (
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/masked"
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

// eventKinds are the kinds of events in the order of the form.
var eventKinds = []letters.EventKind{
	letters.EventSelected, letters.EventEdited, letters.EventRedriven, letters.EventSucceeded, letters.EventFailedAgain,
	letters.EventQuarantined, letters.EventRefused, letters.EventDiscarded, letters.EventWaiting, letters.EventShown,
	letters.EventArrivedAgain, letters.EventLeaseBroken, letters.EventKeyRemoved, letters.EventResealed,
	letters.EventPurged, letters.EventErased, letters.EventErasure, letters.EventStored,
}

// auditFilter reads the filter of the record from the query of a URL. A letter has its own history.
func auditFilter(q url.Values, now time.Time) (f letters.EventFilter, seq int64, err error) {
	f = letters.EventFilter{By: operate.Filled(q["by"]), MessageIDs: operate.Filled(q["id"]),
		RedriveIDs:  operate.Filled(q["redrive-id"]),
		NewestFirst: true}
	for _, kind := range operate.Filled(q["kind"]) {
		if !slices.Contains(eventKinds, letters.EventKind(kind)) {
			return f, 0, badInput("The kind of entry is unknown.")
		}
		f.Kinds = append(f.Kinds, letters.EventKind(kind))
	}
	if f.Since, err = operate.Moment("since", q.Get("since"), now); err != nil {
		return f, 0, err
	}
	if f.Until, err = operate.Moment("until", q.Get("until"), now); err != nil {
		return f, 0, err
	}
	number := func(name string) (n int64) {
		typed := q.Get(name)
		if typed == "" || err != nil {
			return 0
		}
		var wrong error
		if n, wrong = strconv.ParseInt(typed, 10, 64); wrong != nil || n < 1 {
			err = badInput("The number cannot be one of a letter.")
		}
		return n
	}
	seq, f.After = number("letter"), number("after")
	if len(f.By)+len(f.MessageIDs)+len(f.RedriveIDs)+len(f.Kinds) > letters.MaxListed {
		err = badInput(say("The filter has too many values. At most %s are possible.", letters.MaxListed))
	}
	return f, seq, err
}

func (c *Console) audit(r *request) (answer, error) {
	f, seq, err := auditFilter(r.query, r.now)
	if err != nil {
		return answer{}, err
	}
	view := auditView{
		By: r.query.Get("by"), Since: r.query.Get("since"), Until: r.query.Get("until"), Message: r.query.Get("id"),
		Letter: r.query.Get("letter"), RedriveID: r.query.Get("redrive-id"), Details: r.person.Role >= Look,
		Action: r.link("audit", nil),
	}
	for _, kind := range eventKinds {
		view.Kinds = append(view.Kinds,
			kindOption{string(kind), operate.EventWords(kind), slices.Contains(f.Kinds, kind)})
	}
	var events []letters.Event
	if seq > 0 {
		events, err = c.store.History(r.Context(), seq)
	} else {
		f.Limit = eventsAtOnce + 1
		events, err = c.store.Audit(r.Context(), f)
	}
	if err != nil {
		return answer{}, err
	}
	q := url.Values{}
	for _, name := range []string{"by", "kind", "since", "until", "id", "redrive-id", "letter"} {
		if some := operate.Filled(r.query[name]); len(some) > 0 {
			q[name] = some
		}
	}
	view.JSON, view.CSV = r.link("audit/"+auditJSON, q), r.link("audit/"+auditCSV, q)
	if seq == 0 && len(events) > eventsAtOnce {
		events = events[:eventsAtOnce]
		q.Set("after", strconv.FormatInt(events[len(events)-1].Number, 10))
		view.Next = r.link("audit", q)
	}
	for _, e := range events {
		view.Events = append(view.Events, c.auditLine(r, e))
	}
	return answer{page: "audit", title: "Audit", view: view}, nil
}

func (c *Console) auditLine(r *request, e letters.Event) auditLine {
	line := auditLine{Number: e.Number, At: e.At, By: e.By, What: operate.EventWords(e.Kind), Reason: e.Reason,
		MessageID: e.MessageID, RedriveID: e.RedriveID}
	if e.Seq > 0 {
		line.Letter = r.link("letters/"+id(e.Seq), nil)
	}
	switch {
	case discards.isKey(e.RedriveID):
		line.Redrive = r.link(discards.path(e.RedriveID), nil)
	case restores.isKey(e.RedriveID):
		line.Redrive = r.link(restores.path(e.RedriveID), nil)
	case e.RedriveID != "":
		line.Redrive = r.link("campaigns/"+url.PathEscape(e.RedriveID), nil)
	}
	if r.person.Role >= Look {
		line.Details = masked.Detail(c.config.Privacy, e.Detail)
	}
	return line
}
