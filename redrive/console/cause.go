package console

import (
	"html/template"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// causeRow is a cause, and what can be done with its letters.
type causeRow struct {
	Reason, Handler, Topic, Class, Description string
	Letters, LastHour                          int
	New                                        bool // its first letter failed in the last hour
	Trend                                      template.HTML
	First, Last                                time.Time
	Link, Sample                               string
	Acts                                       []act
}

func (r *request) causeRow(g letters.Group) causeRow {
	return causeRow{Reason: g.Reason, Handler: g.Handler, Topic: g.Topic, Class: g.Class.String(), Description: g.Description,
		Letters: g.Count, First: g.FirstFailedAt, Last: g.LastFailedAt, New: r.now.Sub(g.FirstFailedAt) < time.Hour,
		Sample: r.link("letters/"+id(g.Example), nil)}
}

// statusLink leads to the letters in a status.
type statusLink struct {
	Name, Link string
	Letters    int
	Here       bool
}

// statusLinks lead to the letters in each of these states, where a list has those of f.
func statusLinks(f letters.Filter, states []letters.Status, link func(letters.Filter) string) (links []statusLink) {
	waiting := []letters.Status{letters.StatusWaiting}
	here := f.Statuses
	if len(here) == 0 {
		here = waiting
	}
	for _, status := range states {
		one := []letters.Status{status}
		if f.Statuses = one; status == letters.StatusWaiting {
			f.Statuses = nil
		}
		links = append(links, statusLink{Name: operate.StatusWords(status), Link: link(f), Here: slices.Equal(here, one)})
	}
	return links
}

// causeFacts is what stands above the letters of one cause.
type causeFacts struct {
	causeRow
	Statuses []statusLink
}

// causeOf is the cause whose letters a list has, if it has those of one.
func (c *console) causeOf(r *request, f letters.Filter) (*causeFacts, error) {
	if len(f.Causes) != 1 {
		return nil, nil
	}
	groups, err := c.desk.Store.Groups(r.http.Context(), letters.Filter{Causes: f.Causes, Statuses: letters.Statuses(), Limit: 1})
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	g := groups[0]
	states := slices.DeleteFunc(letters.Statuses(), func(s letters.Status) bool {
		return g.All[s] == 0 && s != letters.StatusWaiting && !slices.Contains(f.Statuses, s)
	})
	facts := &causeFacts{causeRow: r.causeRow(g), Statuses: statusLinks(letters.Filter{Causes: f.Causes, Statuses: f.Statuses},
		states, func(f letters.Filter) string { return r.link("letters", operate.FilterValues(f)) })}
	for i, status := range states {
		facts.Statuses[i].Letters = g.All[status]
	}
	return facts, nil
}
