package delayed

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// maxRefusals is how many messages in a row a topic may refuse before it is believed to be down, and not the
	// messages.
	maxRefusals = 3
	// maxTopics bounds what is remembered: names of topics may come from messages.
	maxTopics = 1000

	firstTopicWait, maxTopicWait = 100 * time.Millisecond, 30 * time.Second
	firstRowWait, maxRowWait     = 200 * time.Millisecond, time.Minute
)

// topics remembers those that refused messages.
type topics map[string]*topic

type topic struct {
	refusals int       // since it last took a message
	careful  int       // how many messages are to be published one by one, to find those that are refused
	until    time.Time // nothing is published before
}

// wait returns for how long nothing is published to a topic.
func (t topics) wait(name string, now time.Time) time.Duration {
	if one := t[name]; one != nil {
		return max(0, one.until.Sub(now))
	}
	return 0
}

// passed returns the topics whose messages are left alone since they refuse, those that may be tried again with
// one message, and how long it is until there is one.
func (t topics) passed(now time.Time) (all, probes []string, in time.Duration) {
	in = maxTopicWait
	for name, one := range t {
		wait := one.until.Sub(now)
		if one.refusals < maxRefusals && wait <= 0 {
			continue
		}
		all = append(all, name)
		if in = min(in, wait); wait <= 0 {
			probes = append(probes, name)
		}
	}
	slices.Sort(all) // else there would be a statement for each order
	return all, probes, in
}

// empty notes that no message of a topic is free that was to be tried again. Step by step the topic is forgotten.
func (t topics) empty(name string, until time.Time) {
	if one := t[name]; one != nil {
		one.refusals /= 2
		one.until = until
	}
}

// atOnce is how many of n messages can go in one call.
func (t topics) atOnce(name string, n int) int {
	if t[name] != nil {
		return 1
	}
	return n
}

// took notes that the topic took messages.
func (t topics) took(name string) {
	if one := t[name]; one != nil {
		one.refusals = 0
		if one.careful--; one.careful <= 0 {
			delete(t, name)
		}
	}
}

// refused notes that the topic refused n messages in one call. One message may be refused for what it is; several are
// tried one by one after a short wait.
func (t topics) refused(name string, n int, now time.Time) {
	one := t[name]
	if one == nil {
		if t.makeRoom(now); len(t) >= maxTopics {
			return // its messages still wait
		}
		one = &topic{}
		t[name] = one
	}
	one.careful = max(one.careful, n)
	one.refusals++
	if over := one.refusals - maxRefusals; n > 1 || over >= 0 {
		one.until = now.Add(doubled(firstTopicWait, max(0, over), maxTopicWait))
	}
}

// makeRoom forgets topics that are not blocked any more.
func (t topics) makeRoom(now time.Time) {
	if len(t) < maxTopics {
		return
	}
	for name, one := range t {
		if !one.until.After(now) {
			delete(t, name)
		}
	}
}

// doubled is first, doubled n times, at most most, and up to a tenth less, so that relays do not go in step.
func doubled(first time.Duration, n int, most time.Duration) time.Duration {
	d := most
	if n = max(0, n); n < 30 { // it may come from a row
		d = min(first<<n, most)
	}
	return d - rand.N(d/10)
}
