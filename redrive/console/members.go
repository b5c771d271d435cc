package console

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/console/internal/fleet"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

type fleetView struct {
	Services []memberLine
	Causes   []memberCause
	Waiting  int // letters of all services that could be read
	Unknown  int // services of which it is not known whether the person may see them
}

type memberLine struct {
	Name, Link                              string
	Failed                                  string // why there are no numbers
	Waiting, FailedAgain, Campaigns, Paused int
	Oldest                                  time.Time
	OldestAge                               string
}

// memberCause is a cause of one service. Its texts are masked as the service does.
type memberCause struct {
	Service, Home, Class         string
	Reason, Handler, Description template.HTML
	Letters                      int
	First, Last                  time.Time
	Link                         string
}

// mayLook reports whether a person may see anything of a service.
func (c *console) mayLook(hr *http.Request) (may bool, note string, err error) {
	who, note, err := c.person(hr)
	return who.Role >= LookWithoutPayload, note, err
}

// state is how the service of a console stands.
func (c *console) state(ctx context.Context) (s fleet.State, err error) {
	totals, err := c.desk.Store.Inside().Totals(ctx)
	if err != nil {
		return s, err
	}
	s.Waiting, s.FailedAgain = totals[letters.StatusWaiting], totals[letters.StatusFailedAgain]
	first, err := c.desk.Store.Heads(ctx, letters.Filter{Limit: 1})
	if err != nil {
		return s, err
	}
	if len(first) > 0 {
		s.Oldest = first[0].FirstFailedAt
	}
	all, err := c.desk.Campaigns.Inside().Summary(ctx)
	if err != nil {
		return s, err
	}
	for state, n := range all.States {
		if !state.Ended() {
			s.Campaigns += n
		}
	}
	s.Stopped = all.Stopped
	s.Causes, err = c.desk.Store.Groups(ctx, letters.Filter{Limit: fleetCauses})
	return s, err
}

// overview shows the services that the person may see, and the causes of them all.
func (m *members) overview(_ *console, r *request) (answer, error) {
	var v fleetView
	var unknown error
	note := ""
	for i, seen := range fleet.Look(r.http, m.services, m.timeout) {
		note = cmp.Or(note, seen.Note)
		switch {
		case seen.Unknown != nil: // it has no name here: the person may be one who may not see it
			v.Unknown++
			unknown = seen.Unknown
			m.all[i].console.log(r, seen.Unknown)
		case seen.May:
			v.add(r, m.all[i], seen)
		}
	}
	if err := r.http.Context().Err(); errors.Is(err, context.Canceled) {
		return answer{}, err
	}
	switch {
	case len(v.Services) == 0 && unknown != nil:
		return answer{}, accessUnknown(unknown)
	case len(v.Services) == 0:
		return answer{}, &fault{status: http.StatusForbidden, title: "Not allowed",
			text: "You may not see the dead letters of these services.", detail: note}
	}
	slices.SortStableFunc(v.Causes, func(a, b memberCause) int { return cmp.Compare(b.Letters, a.Letters) })
	v.Causes = v.Causes[:min(len(v.Causes), fleetCauses)]
	r.note = note
	return answer{page: "fleet", title: "All services", view: v}, nil
}

// add adds a service, and its causes.
func (v *fleetView) add(r *request, of member, seen fleet.Seen) {
	c, line := of.console, memberLine{Name: of.name, Link: cmp.Or(of.home, r.link("s/"+of.name+"/", nil))}
	switch {
	case errors.Is(seen.Err, fleet.ErrBusy):
		line.Failed = "An earlier look at this service has no answer yet."
	case errors.Is(seen.Err, fleet.ErrLate), errors.Is(seen.Err, context.DeadlineExceeded):
		line.Failed = "This service could not be read in time."
	case seen.Err != nil:
		line.Failed = "This service could not be read. Its log says why."
	}
	if seen.Err != nil && !errors.Is(seen.Err, fleet.ErrBusy) && r.http.Context().Err() == nil {
		c.log(r, seen.Err)
	}
	s := seen.State
	if seen.Err == nil {
		line.Waiting, line.FailedAgain, line.Campaigns, line.Paused = s.Waiting, s.FailedAgain, s.Campaigns, s.Stopped
		if line.Oldest = s.Oldest; !s.Oldest.IsZero() {
			line.OldestAge = age(r.now.Sub(s.Oldest))
		}
		v.Waiting += s.Waiting
		for _, g := range s.Causes {
			v.Causes = append(v.Causes, memberCause{
				Service: of.name, Home: line.Link, Class: g.Class.String(), Reason: c.value(g.Reason, 60),
				Handler: c.value(g.Handler, 60), Description: c.value(g.Description), Letters: g.Count, First: g.FirstFailedAt,
				Last: g.LastFailedAt,
				Link: line.Link + "letters?" + operate.FilterValues(letters.Filter{Causes: []string{g.Cause}}).Encode(),
			})
		}
	}
	v.Services = append(v.Services, line)
}
