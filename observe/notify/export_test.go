package notify

import "time"

// Hurry makes a Notifier do in milliseconds what it does in seconds.
func Hurry(n *Notifier) {
	n.pace = pace{round: 5 * time.Millisecond, sweep: 20 * time.Millisecond, lease: 2 * time.Second, answer: 5 * time.Second, retry: time.Millisecond}
}

// Unhurry is the pace of production, for tests with a clock of their own.
func Unhurry(n *Notifier) { n.pace = paces }

// Line is line.
var Line = line
