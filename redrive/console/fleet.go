package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/api"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/redrive/console/internal/fleet"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// fleetTimeout is how long the page of a fleet waits for its services.
	fleetTimeout = 3 * time.Second
	// fleetCauses is how many causes the page of a fleet shows.
	fleetCauses = 20
)

// members are the services of a fleet, in the order of their names.
type members struct {
	all      []member
	services []*fleet.Service // of all, in the same order
	own      *console         // its pages are those of the fleet
	timeout  time.Duration
}

// member is a service of a fleet, by its name in addresses.
type member struct {
	name    string
	console *console
	handler http.Handler // nil if its console is elsewhere
	home    string       // where its console is elsewhere
}

var memberName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,59}$`)

// Fleet returns a handler with one console over several services: a page with all services and their causes, and below
// s/{name}/ the console of each service, as New returns it. Each service is asked by its own Access what a person may
// see and do there. A service with a Config.URL has its console elsewhere: the page links to it. Nothing is copied, and
// a service that is unavailable hides no other.
func Fleet(services map[string]Config) (http.Handler, error) {
	if len(services) == 0 {
		return nil, errors.New(`console: Fleet: services is empty: give each service a name and its console.Config`)
	}
	m := &members{timeout: fleetTimeout}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if !memberName.MatchString(name) {
			return nil, fmt.Errorf("console: Fleet: services has %q: a name stands in addresses, so use 1 to 60 of a-z, "+
				`0-9, ".", "_" and "-", and begin with a letter or a digit`, boundedtext.Text(name, 100))
		}
		join := here
		if services[name].URL != "" {
			join = elsewhere
		}
		one, client, err := join(name, services[name])
		if err != nil {
			return nil, fmt.Errorf("console: Fleet: services[%q]: %w", name, err)
		}
		m.all = append(m.all, one)
		m.services = append(m.services, fleet.New(one.console.mayLook, func(ctx context.Context) (fleet.State, error) {
			return fleet.Read(ctx, client, fleetCauses)
		}))
	}
	m.own = &console{
		desk: &operate.Desk{}, origins: http.NewCrossOriginProtection(), now: time.Now,
		timeout: usualTimeout, routes: []route{
			{Route: web.Route{Name: "fleet", Method: http.MethodGet, Pattern: "/"}, handle: m.overview}, staticRoute,
		},
	}
	m.own.serve = m.own.handler()
	m.own.config.Logger = m.all[0].console.config.Logger // of what is the fault of no service
	var err error
	if m.own.pages, err = m.own.parse(); err != nil {
		return nil, fmt.Errorf("console: Fleet: %w", err)
	}
	return m, nil
}

// here is a service whose console is part of the fleet.
func here(name string, config Config) (member, *apiclient.Client, error) {
	handler, err := New(config)
	if err != nil {
		return member{}, nil, err
	}
	c := handler.(*console)
	c.inFleet = true
	return member{name: name, console: c, handler: http.StripPrefix("/s/"+name, c)},
		apiclient.Here(api.Local(c.desk, name), "a console of Spillway"), nil
}

// elsewhere is a service with a console of its own, to which the fleet links.
func elsewhere(name string, config Config) (member, *apiclient.Client, error) {
	switch {
	case config.Campaigns != nil || config.Breakers != nil || config.TrustedOrigins != nil:
		return member{}, nil, errors.New("console: Config.URL is set, and so is Campaigns, Breakers or TrustedOrigins: leave " +
			"those to the console there")
	case config.Access == nil:
		return member{}, nil, errNoAccess
	}
	client, err := fleet.OverAPI(config.URL, config.TokenFile)
	if err != nil {
		return member{}, nil, fmt.Errorf("console: %w", err)
	}
	config.setDefaults()
	c := &console{config: config, desk: &operate.Desk{Masks: config.Privacy}}
	return member{name: name, console: c, home: client.Home()}, client, nil
}

// ServeHTTP answers a request with the console of a service, or with a page of the fleet.
func (m *members) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/s/"); ok {
		name, _, _ := strings.Cut(path, "/")
		if i := slices.IndexFunc(m.all, func(one member) bool { return one.name == name && one.handler != nil }); i >= 0 {
			m.all[i].handler.ServeHTTP(w, r)
			return
		}
	}
	m.own.ServeHTTP(w, r)
}

type fleetView struct {
	Services []memberLine
	Causes   []memberCause
	Waiting  int // letters of all services that could be read
	Unknown  int // services of which it is not known whether the person may see them
}

type memberLine struct {
	Name, Link           string
	Failed               string // why there are no numbers
	Waiting, FailedAgain int
	fleet.State
	OldestAge string
}

// memberCause is a cause of one service. Its texts are masked as the service does.
type memberCause struct {
	operate.CauseData
	Service, Home, Link                       string
	InClass, InReason, InHandler, Explanation template.HTML
}

// mayLook reports whether a person may see anything of a service.
func (c *console) mayLook(hr *http.Request) (may bool, note string, err error) {
	who, note, err := c.person(hr)
	return who.Role >= LookWithoutPayload, note, err
}

// overview shows the services that the person may see, and the causes of them all.
func (m *members) overview(_ *console, r *request) (answer, error) {
	var v fleetView
	var unknown error
	note := ""
	for i, seen := range fleet.Look(r.HTTP, m.services, m.timeout) {
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
	if err := r.HTTP.Context().Err(); errors.Is(err, context.Canceled) {
		return answer{}, err
	}
	switch {
	case len(v.Services) == 0 && unknown != nil:
		return answer{}, accessUnknown(unknown)
	case len(v.Services) == 0:
		return answer{}, &fault{status: http.StatusForbidden, title: "Not allowed",
			text: "You may not see the dead letters of these services.", detail: note}
	}
	slices.SortStableFunc(v.Causes, func(a, b memberCause) int { return cmp.Compare(b.Count, a.Count) })
	v.Causes = v.Causes[:min(len(v.Causes), fleetCauses)]
	r.Note = note
	return answer{page: "fleet", title: "All services", view: v}, nil
}

// add adds a service, and its causes.
func (v *fleetView) add(r *request, of member, seen fleet.Seen) {
	c, line := of.console, memberLine{Name: of.name, Link: cmp.Or(of.home, r.link("s/"+of.name+"/", nil))}
	switch {
	case errors.Is(seen.Err, fleet.ErrLate), errors.Is(seen.Err, context.DeadlineExceeded):
		line.Failed = "This service could not be read in time."
	case seen.Err != nil:
		line.Failed = "This service could not be read. Its log says why."
	}
	if seen.Err != nil && r.HTTP.Context().Err() == nil {
		c.log(r, seen.Err)
	}
	if seen.Err == nil {
		line.State = seen.State
		line.Waiting = max(0, line.Letters[string(letters.StatusWaiting)])
		line.FailedAgain = max(0, line.Letters[string(letters.StatusFailedAgain)])
		if !line.OldestFailedAt.IsZero() {
			line.OldestAge = age(r.Now.Sub(line.OldestFailedAt))
		}
		v.Waiting += line.Waiting
		for _, g := range line.Causes {
			g.Count = max(0, g.Count)
			v.Causes = append(v.Causes, memberCause{CauseData: g, Service: of.name, Home: line.Link, InClass: c.value(g.Class, 20),
				InReason: c.value(g.Reason, 60), InHandler: c.value(g.Handler, 60), Explanation: c.value(g.Description),
				Link: line.Link + "letters?" + operate.FilterValues(letters.Filter{Causes: []string{g.Cause}}).Encode()})
		}
	}
	v.Services = append(v.Services, line)
}
