package outage

import "time"

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

// Owner is a part with a dependency of its own. A type is an Owner if it embeds an Owned, so no part exports a method
// with a type of this package.
type Owner interface{ dependency() *Dependency }

// Owned makes the type that embeds it an Owner. A public type embeds it under an unexported name.
type Owned struct{ of *Dependency }

// OwnedBy returns the Owned of a part with this dependency.
func OwnedBy(d *Dependency) Owned { return Owned{d} }

func (o Owned) dependency() *Dependency { return o.of }

// Of returns the dependency of a part.
func Of(part Owner) *Dependency { return part.dependency() }
