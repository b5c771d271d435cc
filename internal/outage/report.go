package outage

import (
	"reflect"
	"time"
)

// Report is an outage that goes on.
type Report struct {
	Name    string // what is away
	Since   time.Time
	Waiting int // messages that are held
}

// Report returns the outage of the dependency that the log has, if there is one.
func (g *Dependency) Report() (Report, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Report{Name: g.config.Name, Since: g.episode.began, Waiting: g.waiting}, g.failures > 0 && g.episode.logged
}

// watched has the dependency of each type that Watch was called with. Only init functions write to it.
var watched = make(map[reflect.Type]func(part any) *Dependency)

// Watch makes the guards of parts of type T known to Of. Call it in the init function of T's package. So the front door
// can report the outages of many packages, and no part exports a method with a type of this package.
func Watch[T any](dependency func(part T) *Dependency) {
	watched[reflect.TypeFor[T]()] = func(part any) *Dependency { return dependency(part.(T)) }
}

// Of returns the dependency of a part, or nil if it has none.
func Of(part any) *Dependency {
	if dependency := watched[reflect.TypeOf(part)]; dependency != nil {
		return dependency(part)
	}
	return nil
}
