package prom

import "github.com/watermill-spillway/spillway"

// HooksInto does what spillway.New does after Observe, for tests that call the hooks themselves.
func (m *Metrics) HooksInto(config *spillway.Config) { m.hooks(config) }
