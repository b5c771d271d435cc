package outage

import (
	"time"

	"github.com/watermill-spillway/spillway/internal/timing/recent"
)

const (
	// maxRefusal is how long a message may be refused while others pass. A store that is short of connections refuses
	// some messages too.
	maxRefusal = 5 * time.Minute
	// minRefusals is how often others must have passed between two refusals of a message.
	minRefusals = 3
	// maxInterruptions is how often in a row a lost connection may interrupt work on a message.
	maxInterruptions = 10
	// minBackoff and maxBackoff bound the wait of a message that is refused while others pass.
	minBackoff = 250 * time.Millisecond
	maxBackoff = 10 * time.Second
	// idle is how long no message must have passed until failures of a message count as an outage, although others had
	// passed.
	idle = time.Minute
	// forgotten is how long after its last failure a message that comes again counts as new.
	forgotten = 10 * time.Minute
	// maxDoublings bounds the doublings of maxRefusal.
	maxDoublings = 10
)

// suspect is what is remembered of a message that failed.
type suspect struct {
	first, last   time.Time
	refusals      int // with others that passed in between
	losses        int // errors that are Config.Lost
	interruptions int

	due     time.Time     // the next attempt, if others pass
	backoff time.Duration // before due

	cuts     int       // of the connection under a request, in a row, while no other message met one
	firstCut time.Time // of these
	hopeless bool      // the message cuts the connection, or is let go: see nacks
}

// suspects are messages that failed lately. The dependency's lock guards them.
type suspects struct {
	recent.Memory[suspect]
	others time.Time // when a message last passed

	cut          recent.Message // the message that met the latest cut
	disconnected time.Time      // when an error last said that there is no connection
	inVain       int            // messages that were found to cut the connection, since one passed
}

// refused notes that a message was refused, and that the connection was lost under its request if so. It reports
// whether others passed since the message was last refused. If they did, the message's next wait is longer.
func (s *suspects) refused(of recent.Message, now time.Time, lost bool, l link) (alone bool) {
	one := s.Note(of, now)
	if one.first.IsZero() {
		one.first = now
	}
	alone = !one.last.IsZero() && one.refusals > 0 && s.others.After(one.last)
	if alone || one.refusals == 0 {
		one.refusals++
	}
	if alone {
		one.backoff = min(max(2*one.backoff, minBackoff), maxBackoff)
		one.due = now.Add(one.backoff)
	}
	if lost {
		one.losses++
	}
	s.noteLink(one, of, now, l)
	one.last = now
	return alone
}

// noteLink counts cut connections of one message alone. An outage begins with cuts too, but goes on with failures to
// connect.
func (s *suspects) noteLink(one *suspect, of recent.Message, now time.Time, l link) {
	switch l {
	case disconnected:
		s.disconnected = now
	case cut:
		if one.cuts == 0 || s.cut != of || !s.disconnected.Before(one.firstCut) {
			one.cuts, one.firstCut = 0, now
		}
		s.cut = of
		one.cuts++
	}
	if one.hopeless || l != cut || one.cuts <= maxInterruptions {
		return
	}
	// If the next message has cuts too, perhaps no message causes them: a proxy can accept connections for a server
	// that is away.
	if now.Sub(one.firstCut) >= maxRefusal<<min(s.inVain, maxDoublings) {
		one.hopeless = true
		s.inVain++
	}
}

// condemned reports whether a message is refused for good: others pass and it does not, or it ends the connection.
func (s *suspects) condemned(of recent.Message, now time.Time) bool {
	one := s.Get(of)
	return one != nil && (one.hopeless || one.losses > maxInterruptions ||
		!one.first.IsZero() && one.refusals >= minRefusals && now.Sub(one.first) >= maxRefusal)
}

// condemn notes that a message is let go: see nacks.
func (s *suspects) condemn(of recent.Message, now time.Time) { s.Note(of, now).hopeless = true }

// due returns when a message that was refused while others passed may try again. A condemned message does not wait.
func (s *suspects) due(of recent.Message) time.Time {
	one := s.Get(of)
	if one == nil || s.condemned(of, one.last) {
		return time.Time{}
	}
	return one.due
}

// passing reports whether a message is refused while others pass, or passed a short time ago.
func (s *suspects) passing(of recent.Message, now time.Time) bool {
	one := s.Get(of)
	return one != nil && one.refusals > 1 && now.Sub(s.others) < idle
}

// passed notes that a message passed.
func (s *suspects) passed(of recent.Message, now time.Time) {
	s.others, s.inVain = now, 0
	if one := s.Get(of); one != nil {
		*one = suspect{last: one.last, interruptions: one.interruptions}
		if one.interruptions == 0 {
			s.Forget(of)
		}
	}
	s.Sweep(now)
}

// interrupted notes that work on a message was interrupted, and reports whether it was too often.
func (s *suspects) interrupted(of recent.Message, now time.Time) bool {
	one := s.Note(of, now)
	one.last = now
	one.interruptions++
	return one.interruptions > maxInterruptions
}
