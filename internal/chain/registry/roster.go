// Package roster knows the names of the handlers of routers, so that a name that no handler has can be refused.
package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// Roster has the handlers of any number of routers. The zero value is ready for use.
type Registry struct {
	mu      sync.Mutex
	routers map[*message.Router][]string // nil for one that does not run yet
	late    bool                         // a handler was added to a router that runs
}

// Expect tells the Roster of a router that is going to run.
func (r *Registry) Expect(router *message.Router) { r.note(router, nil) }

// Join takes the names of the handlers of a router. It is called in a plugin: then no handler runs yet.
func (r *Registry) Join(router *message.Router) {
	names := slices.AppendSeq(make([]string, 0, 8), maps.Keys(router.Handlers()))
	if !r.note(router, names) {
		return
	}
	started := 0 // the router starts one handler after another
	router.AddSubscriberDecorators(func(sub message.Subscriber) (message.Subscriber, error) {
		if started++; started > len(names) { // Watermill does not say its name
			r.mu.Lock()
			defer r.mu.Unlock()
			r.late = true
		}
		return sub, nil
	})
}

// note reports whether names are new.
func (r *Registry) note(router *message.Router, names []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.routers == nil {
		r.routers = make(map[*message.Router][]string)
	}
	if r.routers[router] != nil {
		return false
	}
	r.routers[router] = names
	return true
}

// Complete reports whether each router runs, and none has got a further handler since.
func (r *Registry) Complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, names := range r.routers {
		if names == nil {
			return false
		}
	}
	return len(r.routers) > 0 && !r.late
}

// Has reports whether a handler has the name.
func (r *Registry) Has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, names := range r.routers {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// maxShown is the number of names in a text.
const maxShown = 20

// String lists the names, for an error.
func (r *Registry) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, names := range r.routers {
		for _, name := range names {
			all = append(all, fmt.Sprintf("%q", boundedtext.Text(name, 100)))
		}
	}
	slices.Sort(all)
	if more := len(all) - maxShown; more > 0 {
		all = append(all[:maxShown], fmt.Sprintf("and %d more", more))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
