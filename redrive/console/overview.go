package console

import (
	"cmp"
	"html/template"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	shownCampaigns = 20
	shownEvents    = 10
	readEvents     = 200 // to fold into as many lines
)

// overview answers three questions: is something wrong, since when, and is a person at it already.
func (c *console) overview(r *request) (answer, error) {
	view, err := c.overviewOf(r)
	return answer{page: "overview", title: "Overview", view: view}, err
}

type overview struct {
	Statuses     []statusCount
	Waiting      int
	WaitingLink  string
	Oldest       time.Time
	OldestAge    string
	Hour         int
	HourPart     bool // of so many causes that not all are counted: the numbers are the least that there are
	Chart        template.HTML
	Top          int
	New          int // causes whose first letter failed in the last hour
	Legend       []legend
	Snoozed      []legend
	More         int    // causes that wait and are not named
	Causes       string // the address of all
	Breakers     []circuit.Status
	HasBreakers  bool
	BreakersFail bool // Config.Breakers panicked
	Campaigns    []campaignLine
	Events       []eventLine
}

type statusCount struct {
	Name    string
	Letters int
	Link    string
}

// campaignLine is a campaign in a line.
type campaignLine struct {
	operate.CampaignData
	Link, Words string // the address, and the state
	Done        int
}

type eventLine struct {
	auditLine
	Several string // in place of the one letter
}

func (c *console) overviewOf(r *request) (v overview, err error) {
	ctx := r.HTTP.Context()
	totals, err := hidden.Of(c.desk.Store).Totals(ctx)
	if err != nil {
		return v, err
	}
	v.Waiting, v.WaitingLink = totals[letters.StatusWaiting], r.link("letters", nil)
	for _, status := range letters.Statuses() {
		if n := totals[status]; n > 0 || status == letters.StatusWaiting {
			link := r.link("letters", operate.FilterValues(letters.Filter{Statuses: []letters.Status{status}}))
			v.Statuses = append(v.Statuses, statusCount{operate.StatusWords(status), n, link})
		}
	}
	first, err := c.desk.Store.Heads(ctx, letters.Filter{Limit: 1})
	if err != nil {
		return v, err
	}
	if len(first) > 0 {
		v.Oldest = first[0].FirstFailedAt
		v.OldestAge = age(r.Now.Sub(v.Oldest))
	}
	if err := c.arrivals(r, &v); err != nil {
		return v, err
	}
	if v.HasBreakers = c.config.Breakers != nil; v.HasBreakers {
		v.Breakers, v.BreakersFail = c.breakers(r)
	}
	running, err := c.desk.Campaigns.List(ctx, campaigns.List{Limit: shownCampaigns, States: []campaigns.State{
		campaigns.Selecting, campaigns.Approval, campaigns.Scheduled, campaigns.Running, campaigns.Canary, campaigns.Paused,
	}})
	if err != nil {
		return v, err
	}
	for _, one := range running {
		v.Campaigns = append(v.Campaigns, c.lineOf(r, one))
	}
	v.Events, err = c.doneLast(r)
	return v, err
}

// doneLast are the newest events. What one person did to many letters for one reason is one line.
func (c *console) doneLast(r *request) (lines []eventLine, err error) {
	events, err := c.desk.Audit(r.HTTP.Context(), r.who(""),
		operate.Record{Filter: letters.EventFilter{NewestFirst: true, Limit: readEvents}})
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(events) && len(lines) < shownEvents; {
		first, n := events[i], 0
		for i < len(events) && events[i].Kind == first.Kind && events[i].Act == first.Act {
			i, n = i+1, n+1
		}
		line := eventLine{auditLine: c.auditLine(r, first)}
		switch {
		case n > 1 && i == readEvents:
			line.Several = say("%s letter or more|%s letters or more", n)
		case n > 1:
			line.Several = lettersOf(n)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// breakers asks Config.Breakers, whose panic costs this part of the page alone.
func (c *console) breakers(r *request) (held []circuit.Status, failed bool) {
	err := safecall.Call("console.Config.Breakers", func() error { held = c.config.Breakers(); return nil })
	if err != nil {
		c.log(r, err)
	}
	return held, err != nil
}

const (
	chartCauses   = 5 // that have a colour of their own
	shownSnoozed  = 20
	shownCauses   = 8    // with those that wait and had no arrivals
	arrivalCauses = 5000 // whose arrivals are looked up: those with the most letters
)

// legend is a cause that the overview names: one with a colour of the chart, or one that waits. Without a link it is the
// other causes of the chart together.
type legend struct {
	causeRow
	Colour  string // of the style, or empty
	Waiting int

	minutes []int
}

// arrivals draws the chart of the last hour, and names the causes: the newest trouble first.
func (c *console) arrivals(r *request, v *overview) error {
	causes, err := hidden.Of(c.desk.Store).CausesBySize(r.HTTP.Context(), letters.Filter{Statuses: letters.Statuses()}, 0,
		arrivalCauses)
	if err != nil {
		return err
	}
	v.HourPart = len(causes) == arrivalCauses
	var all []legend
	sums := make([]int, 60)
	for some := range slices.Chunk(causes, mostCauses) {
		groups, err := c.desk.Store.Groups(r.HTTP.Context(), letters.Filter{Causes: some, Statuses: letters.Statuses(),
			Limit: mostCauses})
		if err != nil {
			return err
		}
		arrived, err := hidden.Of(c.desk.Store).Arrivals(r.HTTP.Context(), some...)
		if err != nil {
			return err
		}
		notes, err := c.desk.Notes(r.HTTP.Context(), some...)
		if err != nil {
			return err
		}
		for i := range groups {
			g := &groups[i]
			minutes := arrived[slices.Index(some, g.Cause)].PerMinute[:] // the groups are in an order of their own
			one := legend{causeRow: c.causeRow(r, *g, notes), Waiting: g.All[letters.StatusWaiting], minutes: minutes}
			for minute, n := range one.minutes {
				one.LastHour += n
				sums[minute] += n
			}
			if v.Hour += one.LastHour; one.New {
				v.New++
			}
			all = append(all, one)
		}
	}
	slices.SortStableFunc(all, func(a, b legend) int {
		return cmp.Or(cmp.Compare(b.LastHour, a.LastHour), cmp.Compare(b.Waiting, a.Waiting))
	})
	series := c.legend(r, v, all)
	if v.Causes = r.link("causes", nil); v.Hour > 0 {
		v.Top = slices.Max(sums)
		v.Chart = bars("arrivals", "Arrivals a minute, by cause", say("A bar for each minute of the last hour. At "+
			"most %s a minute.", v.Top), series...)
	}
	return nil
}

// legend names causes in their order, and returns the series of the chart.
func (c *console) legend(r *request, v *overview, all []legend) (series [][]int) {
	others := legend{minutes: make([]int, 60)}
	for _, one := range all {
		list, most := &v.Legend, shownCauses
		if one.Snoozed {
			list, most = &v.Snoozed, shownSnoozed
		}
		switch {
		case one.LastHour > 0 && len(series) < chartCauses && !one.Snoozed:
			one.Colour = colour(len(series))
			series = append(series, one.minutes)
		case one.LastHour > 0:
			others.LastHour, others.Waiting = others.LastHour+one.LastHour, others.Waiting+one.Waiting
			for minute, n := range one.minutes {
				others.minutes[minute] += n
			}
			if !one.Snoozed {
				continue
			}
		case one.Waiting == 0 && !one.Snoozed:
			continue
		}
		if len(*list) >= most {
			v.More++
			continue
		}
		f := letters.Filter{Causes: []string{one.Cause}}
		one.Link = r.link("letters", operate.FilterValues(f))
		f.MaxSeq = one.Example // the newest of the cause
		one.Acts = c.acts(r, f, one.Waiting)
		*list = append(*list, one)
	}
	if others.LastHour > 0 {
		others.Colour = colour(len(series))
		v.Legend = slices.Insert(v.Legend, len(series), others)
		series = append(series, others.minutes)
	}
	return series
}
