package console

import (
	"net/url"
	"strconv"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/console/internal/chart"
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
	f, err := r.filter(r.query)
	if err != nil {
		return v, err
	}
	f.Limit = rows(r.query, causesShown, mostCauses)
	skip, _ := strconv.Atoi(r.query.Get(fieldSkip))
	skip = min(max(0, skip), mostSkipped)
	v.Form = r.filterForm("causes", r.query, fieldRows)
	v.Statuses = statusLinks(f, []letters.Status{letters.StatusWaiting, letters.StatusRefused, letters.StatusQuarantined,
		letters.StatusDiscarded}, func(f letters.Filter) string { return r.link("causes", operate.FilterValues(f)) })
	last, err := c.desk.Store.Inside().LastSeq(r.http.Context())
	if err != nil {
		return v, err
	}
	groups, err := c.desk.Causes(r.http.Context(), f, skip)
	if err != nil {
		return v, err
	}
	hashes := make([]string, len(groups))
	for i, g := range groups {
		hashes[i] = g.Cause
	}
	arrived, err := c.desk.Store.Inside().Arrivals(r.http.Context(), hashes...)
	if err != nil {
		return v, err
	}
	for i, g := range groups {
		row := r.causeRow(g)
		row.Trend = chart.Spark(arrived[i].PerMinute[:])
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
