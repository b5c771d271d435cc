package lifecycle

import "sync/atomic"

// Needed is embedded by an observer that does nothing without a Plugin of its own.
type Needed struct{ added atomic.Bool }

func (n *Needed) needed() *Needed { return n }

// Added says that a router has the Plugin.
func Added(n *Needed) { n.added.Store(true) }

// Misses reports whether no router has the Plugin that the observer needs.
func Misses(observer any) bool {
	o, ok := observer.(interface{ needed() *Needed })
	return ok && !o.needed().added.Load()
}
