package notify

import "time"

// Hurry makes a Notifier do in milliseconds what it does in seconds. A lease does not end by itself: a machine may
// stand still.
func Hurry(n *Notifier) {
	n.pace.round, n.pace.sweep, n.pace.retry = 5*time.Millisecond, 20*time.Millisecond, time.Millisecond
	n.pace.lease, n.pace.answer = time.Hour, 10*time.Second
}

// HurryWith is Hurry with another lease, and time in which the database must answer.
func HurryWith(n *Notifier, lease, answer time.Duration) {
	Hurry(n)
	n.pace.lease, n.pace.answer = lease, answer
}

// Look makes a Notifier look often. A state ends soon after.
func Look(n *Notifier, poll, settle time.Duration) { n.pace.poll, n.pace.settle = poll, settle }

// End bounds how long Stop waits for sinks.
func End(n *Notifier, within time.Duration) { n.pace.end = within }

// Bound has a queue of 2, notices of any number of causes, and those given up early.
func Bound(n *Notifier) { n.pace.queue, n.pace.most, n.pace.giveUp = 2, 1000, 10*time.Minute }

// Start and Stop do what the plugin does with a router, for tests with a clock of their own.
func (n *Notifier) Start() { _ = n.start() } // whose error is nil

// Stop is the end of Start.
func (n *Notifier) Stop() { n.stop() }

// Line is line.
var Line = line
