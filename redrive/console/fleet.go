package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/redrive/console/internal/fleet"
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
// see and do there. A service with a Config.URL has its console elsewhere: the page links to it. Nothing is copied, and a
// service that is away hides no other.
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
		one, read, err := join(name, services[name])
		if err != nil {
			return nil, fmt.Errorf("console: Fleet: services[%q]: %w", name, err)
		}
		m.all = append(m.all, one)
		m.services = append(m.services, fleet.New(one.console.mayLook, read))
	}
	m.own = &console{
		desk: &operate.Desk{}, origins: http.NewCrossOriginProtection(), now: time.Now,
		timeout: usualTimeout, routes: []route{
			{name: "fleet", method: http.MethodGet, pattern: "/", right: nothing, handle: m.overview},
			{name: "static", method: http.MethodGet, pattern: "/static/{file}", right: nothing, handle: (*console).static},
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

// reading reads the state of a service.
type reading = func(context.Context) (fleet.State, error)

// here is a service whose console is part of the fleet.
func here(name string, config Config) (member, reading, error) {
	handler, err := New(config)
	if err != nil {
		return member{}, nil, err
	}
	c := handler.(*console)
	c.inFleet = true
	return member{name: name, console: c, handler: http.StripPrefix("/s/"+name, c)}, c.state, nil
}

// elsewhere is a service with a console of its own, to which the fleet links.
func elsewhere(name string, config Config) (member, reading, error) {
	switch {
	case config.Campaigns != nil || config.Breakers != nil || config.TrustedOrigins != nil:
		return member{}, nil, errors.New("console: Config.URL is set, and so is Campaigns, Breakers or TrustedOrigins: leave " +
			"those to the console there")
	case config.Access == nil:
		return member{}, nil, errNoAccess
	}
	api, err := fleet.OverAPI(config.URL, config.TokenFile, fleetCauses)
	if err != nil {
		return member{}, nil, fmt.Errorf("console: %w", err)
	}
	config.setDefaults()
	c := &console{config: config, desk: &operate.Desk{Masks: config.Privacy}}
	return member{name: name, console: c, home: api.Home()}, api.Read, nil
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
