package poison

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/watermill-spillway/spillway/naming"
)

// route is where the letters of one source go.
type route struct {
	deadLetter bool // the source is a topic of dead letters
	topic      string
	sinks      []Sink
}

// maxRoutes bounds how many sources are remembered. A process has as many as handlers, times classes.
const maxRoutes = 1000

// routes remembers the route of each source: to name it costs a letter a fifth of its allocations.
type routes struct {
	known  atomic.Pointer[map[naming.Source]route] // copied on write
	adding sync.Mutex
}

func (q *Queue) routeOf(source naming.Source) route {
	if known := q.routes.known.Load(); known != nil {
		if r, ok := (*known)[source]; ok {
			return r
		}
	}
	r := q.newRoute(source, q.config.Naming.Inside().IsDeadLetter(source.Topic))
	q.routes.adding.Lock()
	defer q.routes.adding.Unlock()
	now := map[naming.Source]route{}
	if known := q.routes.known.Load(); known != nil {
		now = *known
	}
	if len(now) < maxRoutes {
		next := maps.Clone(now)
		next[source] = r
		q.routes.known.Store(&next)
	}
	return r
}

func (q *Queue) newRoute(source naming.Source, deadLetter bool) route {
	topic := q.destination(source, deadLetter)
	return route{deadLetter: deadLetter, topic: topic, sinks: q.sinks(source, topic, deadLetter)}
}
