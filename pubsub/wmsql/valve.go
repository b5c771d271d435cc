package wmsql

import "context"

// taking waits until messages may be taken, and returns false if ctx ends before that. While nothing may be taken, the
// subscription has neither a transaction nor a connection.
func (s *subscription) taking(ctx context.Context) bool {
	s.probing = s.valve.IsShut()
	if !s.probing {
		return true
	}
	s.session.release()
	return s.valve.Wait(ctx)
}

// refusedFor reports whether a message that was not acked shows nothing of itself. The handler gave it back because
// what it needs is away, or it was the first one after that. shuts is what valve.Shuts was when the message was
// delivered.
func (s *subscription) refusedFor(shuts uint64) bool { return s.probing || s.valve.Shuts() != shuts }
