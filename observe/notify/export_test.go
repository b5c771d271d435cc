package notify

import (
	"time"
)

// Hurry makes a Notifier do in milliseconds what it does in seconds. A lease does not end by itself: a machine may stand still.
func Hurry(n *Notifier) { HurryWith(n, time.Hour, 10*time.Second) }

// HurryWith is Hurry with another lease, and time in which the database must answer.
func HurryWith(n *Notifier, lease, answer time.Duration) {
	n.pace = pace{round: 5 * time.Millisecond, sweep: 20 * time.Millisecond, lease: lease, answer: answer, retry: time.Millisecond}
}

// Start and Stop do what the plugin does with a router, for tests with a clock of their own.
func (n *Notifier) Start() { _ = n.start() } // whose error is nil

// Stop is the end of Start.
func (n *Notifier) Stop() { n.stop() }

// Line is line.
var Line = line
