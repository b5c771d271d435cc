package notify

import (
	"context"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
)

// parcel is a notice on its way to the sinks.
type parcel struct {
	notice Notice
	from   *ledger.Ledger
	t      ledger.Telling
	made   time.Time

	// of sent, under its lock
	open   int  // sinks that are not through with it
	begun  bool // a sink was called with it
	unsent bool // the router closed before a sink was through
}

// sent knows the notices whose leases the instance has.
type sent struct {
	mu      sync.Mutex
	parcels map[*parcel]bool
}

func newSent() *sent { return &sent{parcels: map[*parcel]bool{}} }

func (s *sent) add(in *ledger.Ledger, t ledger.Telling, notice Notice, sinks int) *parcel {
	p := &parcel{notice: notice, from: in, t: t, made: time.Now(), open: sinks}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parcels[p] = true
	return p
}

// has reports whether a notice is on its way.
func (s *sent) has(t ledger.Telling) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.parcels {
		if p.t.Key == t.Key && p.t.Opened == t.Opened && p.t.Number == t.Number {
			return true
		}
	}
	return false
}

// inHand returns the keys of the notices of a ledger that are on their way.
func (s *sent) inHand(in *ledger.Ledger) (keys []ledger.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.parcels {
		if p.from == in {
			keys = append(keys, p.t.Key)
		}
	}
	return keys
}

// begin notes that a sink may have sent the notice.
func (s *sent) begin(p *parcel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.begun = true
}

// done notes that a sink is through with a notice, or was interrupted.
func (s *sent) done(p *parcel, interrupted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.open--
	p.unsent = p.unsent || interrupted
}

// expire takes what a sink has for longer for sent: a sink that hangs must not keep the others from the summary.
func (s *sent) expire(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.parcels {
		if time.Since(p.made) > after {
			p.open = min(p.open, 0)
		}
	}
}

// settle ends the leases of the notices that all sinks are through with. What was interrupted is left to another
// instance: at once if no sink was called with it, or else when the lease ends.
func (s *sent) settle(ctx context.Context) error {
	s.mu.Lock()
	var through []*parcel
	for p := range s.parcels {
		if p.open <= 0 {
			through = append(through, p)
		}
	}
	s.mu.Unlock()
	for _, p := range through {
		var err error
		switch {
		case !p.unsent:
			err = p.from.Done(ctx, p.t)
		case !p.begun:
			err = p.from.Release(ctx, p.t)
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.parcels, p)
		s.mu.Unlock()
	}
	return nil
}
