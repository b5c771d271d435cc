package console

import (
	"cmp"
	"slices"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/console/internal/chart"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	chartCauses   = 5    // that have a colour of their own
	shownCauses   = 8    // with those that wait and had no arrivals
	arrivalCauses = 5000 // whose arrivals are looked up: those with the most letters
)

// legend is a cause that the overview names: one with a colour of the chart, or one that waits. Without a link it is the
// other causes of the chart together.
type legend struct {
	causeRow
	Colour  string // of the style, or empty
	Waiting int

	group   *letters.Group
	minutes []int
}

// arrivals draws the chart of the last hour, and names the causes: the newest trouble first.
func (c *console) arrivals(r *request, v *overview) error {
	causes, err := c.desk.Store.Inside().CausesBySize(r.http.Context(), letters.Filter{Statuses: letters.Statuses()}, 0,
		arrivalCauses)
	if err != nil {
		return err
	}
	v.HourPart = len(causes) == arrivalCauses
	var all []legend
	sums := make([]int, 60)
	for some := range slices.Chunk(causes, mostCauses) {
		groups, err := c.desk.Store.Groups(r.http.Context(), letters.Filter{Causes: some, Statuses: letters.Statuses(),
			Limit: mostCauses})
		if err != nil {
			return err
		}
		arrived, err := c.desk.Store.Inside().Arrivals(r.http.Context(), some...)
		if err != nil {
			return err
		}
		for i := range groups {
			g := &groups[i]
			minutes := arrived[slices.Index(some, g.Cause)].PerMinute[:] // the groups are in an order of their own
			one := legend{causeRow: r.causeRow(*g), Waiting: g.All[letters.StatusWaiting], group: g, minutes: minutes}
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
		v.Chart = chart.Bars("arrivals", "Arrivals a minute, by cause", say("A bar for each minute of the last hour. At "+
			"most %s a minute.", v.Top), series...)
	}
	return nil
}

// legend names causes in their order, and returns the series of the chart.
func (c *console) legend(r *request, v *overview, all []legend) (series [][]int) {
	others := legend{Colour: colour(chartCauses), minutes: make([]int, 60)}
	for i, one := range all {
		switch {
		case one.LastHour > 0 && i < chartCauses:
			one.Colour = colour(i)
			series = append(series, one.minutes)
		case one.LastHour > 0:
			others.LastHour, others.Waiting = others.LastHour+one.LastHour, others.Waiting+one.Waiting
			for minute, n := range one.minutes {
				others.minutes[minute] += n
			}
			continue
		case one.Waiting == 0:
			continue
		case len(v.Legend) >= shownCauses:
			v.More++
			continue
		}
		f := letters.Filter{Causes: []string{one.group.Cause}}
		one.Link = r.link("letters", operate.FilterValues(f))
		f.MaxSeq = one.group.Example // the newest of the cause
		one.Acts = c.acts(r, f, one.Waiting)
		v.Legend = append(v.Legend, one)
	}
	if others.LastHour > 0 {
		series = append(series, others.minutes)
		v.Legend = slices.Insert(v.Legend, chartCauses, others)
	}
	return series
}
