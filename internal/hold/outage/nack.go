package outage

import (
	"time"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// NewNack returns an error for a broker that is reached and does not confirm: it nacks, or is silent. It is Away, and
// Nacked.
func NewNack(text string) error { return &nack{text} }

type nack struct{ text string }

func (e *nack) Error() string { return e.text }

// Nacked reports whether err is what a broker that is reached says of itself, and not of the message: a nack, or
// silence. A queue can be full for good: see Config.Nacked.
func Nacked(err error) bool {
	found := false
	walk(err, func(err error) bool {
		if _, found = err.(*nack); !found && err != nil {
			found = nackedByKafka(foreign.ErrorOf(err))
		}
		return !found
	})
	return found
}

// nacksOfKafka are Kafka's codes with which a broker refuses for reasons of its own: an error that it does not explain,
// a leader without this listener, a quota.
var nacksOfKafka = map[int64]bool{-1: true, 72: true, 89: true}

func nackedByKafka(e foreign.Error) bool { return e.Kind == foreign.Kafka && nacksOfKafka[e.Code()] }

// nacks are the nacks of one thing since a message passed. If all messages are nacked for maxRefusal, one message in
// each such time is let go, with its error: without that, a queue that is full for good would hold all of them for
// ever. The dependency's lock guards it.
type nacks struct {
	since, latest time.Time // without another failure in between
	let           time.Time // when a message was last let go
}

// letsGo notes a failure, and reports whether its message is let go.
func (n *nacks) letsGo(nacked bool, now time.Time) bool {
	if !nacked { // it is away: the nacks before are of an earlier time
		*n = nacks{let: n.let}
		return false
	}
	if n.since.IsZero() || now.Sub(n.latest) >= idle {
		n.since = now
	}
	n.latest = now
	if now.Sub(n.since) < maxRefusal || now.Sub(n.let) < maxRefusal {
		return false
	}
	n.let = now
	return true
}
