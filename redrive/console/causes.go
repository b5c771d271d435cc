package console

import (
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	causesShown = 100
	mostCauses  = operate.MostCauses // whose arrivals one call returns
	mostSkipped = 1_000_000          // before a page of them

	fieldRows, fieldSkip = "rows", "skip" // of an address: how long a list is, and where it begins
)

// causes lists why letters failed, the most frequent causes first.
func (c *console) causes(r *request) (answer, error) {
	v, err := c.causesOf(r)
	return answer{page: "causes", title: "Causes", view: v}, err
}

type causes struct {
	Form     filterForm
	Statuses []statusLink
	Rows     []causeRow
	Letters  int
	More     string // link to a longer list, or to the next page
	First    bool   // it begins with the cause that has the most letters
}

func (c *console) causesOf(r *request) (v causes, err error) {
	f, err := r.filter(r.Query)
	if err != nil {
		return v, err
	}
	f.Limit = rows(r.Query, causesShown, mostCauses)
	skip, _ := strconv.Atoi(r.Query.Get(fieldSkip))
	skip = min(max(0, skip), mostSkipped)
	v.Form = r.filterForm("causes", r.Query, fieldRows)
	v.Statuses = statusLinks(f, []letters.Status{letters.StatusWaiting, letters.StatusRefused, letters.StatusQuarantined,
		letters.StatusDiscarded}, func(f letters.Filter) string { return r.link("causes", operate.FilterValues(f)) })
	last, err := hidden.Of(c.desk.Store).LastSeq(r.HTTP.Context())
	if err != nil {
		return v, err
	}
	groups, err := c.desk.Causes(r.HTTP.Context(), f, skip)
	if err != nil {
		return v, err
	}
	hashes := make([]string, len(groups))
	for i, g := range groups {
		hashes[i] = g.Cause
	}
	arrived, err := hidden.Of(c.desk.Store).Arrivals(r.HTTP.Context(), hashes...)
	if err != nil {
		return v, err
	}
	notes, err := c.desk.Notes(r.HTTP.Context(), hashes...)
	if err != nil {
		return v, err
	}
	for i, g := range groups {
		row := c.causeRow(r, g, notes)
		row.Trend = spark(arrived[i].PerMinute[:])
		for _, n := range arrived[i].PerMinute {
			row.LastHour += n
		}
		of := f
		of.Causes, of.Limit = []string{g.Cause}, 0
		row.Link = r.link("letters", operate.FilterValues(of))
		of.MaxSeq = last
		row.Acts = c.acts(r, of, g.Count)
		v.Letters += g.Count
		v.Rows = append(v.Rows, row)
	}
	if v.First = skip == 0; len(groups) == f.Limit {
		q := operate.FilterValues(f)
		if q.Set(fieldRows, strconv.Itoa(mostCauses)); f.Limit == mostCauses {
			q.Set(fieldSkip, strconv.Itoa(skip+len(groups)))
		}
		v.More = r.link("causes", q)
	}
	return v, nil
}

// rows is the length of a list that a URL asks for.
func rows(q url.Values, usual, most int) int {
	n, err := strconv.Atoi(q.Get(fieldRows))
	if err != nil || n < 1 {
		return usual
	}
	return min(n, most)
}

// causeRow is a cause, and what can be done with its letters.
type causeRow struct {
	operate.CauseData
	LastHour     int
	New          bool // its first letter failed in the last hour
	Trend        template.HTML
	Link, Sample string
	Acts         []act
}

func (c *console) causeRow(r *request, g letters.Group, notes map[string]inside.CauseNote) causeRow {
	row := causeRow{CauseData: c.desk.Cause(g), New: r.Now.Sub(g.FirstFailedAt) < time.Hour,
		Sample: r.link("letters/"+id(g.Example), nil)}
	row.CauseNote = notes[g.Cause]
	return row
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
	Form     *noteForm // if the person may say something of it
}

// causeOf is the cause whose letters a list has, if it has those of one.
func (c *console) causeOf(r *request, f letters.Filter) (*causeFacts, error) {
	if len(f.Causes) != 1 {
		return nil, nil
	}
	groups, err := c.desk.Store.Groups(r.HTTP.Context(), letters.Filter{Causes: f.Causes, Statuses: letters.Statuses(), Limit: 1})
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	g := groups[0]
	states := slices.DeleteFunc(letters.Statuses(), func(s letters.Status) bool {
		return g.All[s] == 0 && s != letters.StatusWaiting && !slices.Contains(f.Statuses, s)
	})
	notes, err := c.desk.Notes(r.HTTP.Context(), g.Cause)
	if err != nil {
		return nil, err
	}
	facts := &causeFacts{causeRow: c.causeRow(r, g, notes), Statuses: statusLinks(letters.Filter{Causes: f.Causes, Statuses: f.Statuses},
		states, func(f letters.Filter) string { return r.link("letters", operate.FilterValues(f)) })}
	if c.can(r.Person, "cause") {
		facts.Form = c.noteForm(r, g.Cause, noteValues(facts.CauseNote), problem{})
	}
	for i, status := range states {
		facts.Statuses[i].Letters = g.All[status]
	}
	return facts, nil
}
