package outage

import (
	"hash/fnv"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
)

const (
	// maxRefusal is how long a message may be refused while others pass: a store that is short of connections refuses some
	// and takes others.
	maxRefusal = 5 * time.Minute
	// minRefusals is how often others must have passed between two refusals of the message.
	minRefusals = 3
	// maxInterruptions is how often in a row work on a message may be interrupted by a lost connection.
	maxInterruptions = 10
	// forgotten is how long after its last failure a message that comes again is a new one.
	forgotten = 10 * time.Minute
	// maxSuspects bounds what is remembered.
	maxSuspects = 1000
)

// subject is a message of a handler.
type subject struct{ handler, id string }

func subjectOf(c *chain.Call) subject {
	handler := message.HandlerNameFromCtx(c.Ctx)
	if id := c.ID(); id != "" {
		return subject{handler, id}
	}
	sum := fnv.New64a()
	_, _ = sum.Write(c.Msg.Payload)
	return subject{handler, strconv.FormatUint(sum.Sum64(), 16)}
}

// suspect is what is remembered of a message that failed.
type suspect struct {
	first, last   time.Time
	refusals      int // between which others passed
	losses        int // of the connection under a request
	interruptions int
}

// suspects are messages that failed lately. The guard's lock guards them.
type suspects struct {
	of     map[subject]*suspect
	others time.Time // when a message last passed
	swept  time.Time
}

func (s *suspects) any() bool { return len(s.of) > 0 }

func (s *suspects) forget(of subject) { delete(s.of, of) }

// find returns what is remembered of a message, from now on.
func (s *suspects) find(of subject, now time.Time) *suspect {
	one := s.of[of]
	if one == nil || now.Sub(one.last) > forgotten {
		s.makeRoom(now)
		one = new(suspect)
		s.of[of] = one
	}
	return one
}

// refused notes that a message was refused, and perhaps that the connection was lost under its request.
func (s *suspects) refused(of subject, now time.Time, lost bool) {
	one := s.find(of, now)
	if one.first.IsZero() {
		one.first = now
	}
	if one.last.IsZero() || s.others.After(one.last) {
		one.refusals++
	}
	one.last = now
	if lost {
		one.losses++
	}
}

// condemned reports whether a message is refused for what it is: others pass, and it does not, or it ends the connection.
func (s *suspects) condemned(of subject, now time.Time) bool {
	one := s.of[of]
	return one != nil && one.losses > maxInterruptions ||
		one != nil && !one.first.IsZero() && one.refusals >= minRefusals && now.Sub(one.first) >= maxRefusal
}

// passed notes that a message passed.
func (s *suspects) passed(of subject, now time.Time) {
	s.others = now
	if one := s.of[of]; one != nil {
		one.first, one.refusals, one.losses = time.Time{}, 0, 0
		if one.interruptions == 0 {
			delete(s.of, of)
		}
	}
	if now.Sub(s.swept) > time.Minute {
		s.sweep(now)
	}
}

// interrupted notes that work on a message was interrupted, and reports whether that was too often.
func (s *suspects) interrupted(of subject, now time.Time) bool {
	one := s.find(of, now)
	one.last = now
	one.interruptions++
	return one.interruptions > maxInterruptions
}

// makeRoom forgets what is old, and if that is not enough anything.
func (s *suspects) makeRoom(now time.Time) {
	if s.of == nil {
		s.of = make(map[subject]*suspect)
	}
	if len(s.of) < maxSuspects {
		return
	}
	s.sweep(now)
	for of := range s.of {
		if len(s.of) < maxSuspects {
			return
		}
		delete(s.of, of)
	}
}

func (s *suspects) sweep(now time.Time) {
	s.swept = now
	for of, one := range s.of {
		if now.Sub(one.last) > forgotten {
			delete(s.of, of)
		}
	}
}
