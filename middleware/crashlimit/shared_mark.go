package crashlimit

// share is the one mark that the deliveries of a message in this process have at a time.
type share struct {
	visits  int
	written written
	removed chan struct{} // not nil while the last of them removes the mark
	decided chan struct{} // closed when the first of them goes on, or does not
	refused bool          // it does not
}

func (s *share) decide(err error) {
	s.refused = err != nil
	close(s.decided)
}

// share takes part in the mark of a message. It reports whether this delivery is the first, which writes it.
func (a *admission) share(m mark) (s *share, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		s = a.shared[m]
		if s == nil {
			break
		}
		if s.removed == nil {
			s.visits++
			return s, false
		}
		removed := s.removed
		a.mu.Unlock()
		<-removed // a statement, whose time is bounded
		a.mu.Lock()
	}
	if a.shared == nil {
		a.shared = make(map[mark]*share)
	}
	s = &share{visits: 1, decided: make(chan struct{})}
	a.shared[m] = s
	return s, true
}

// part ends a delivery's share. The last one removes the mark.
func (a *admission) part(m mark, s *share, remove func(mark, written)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.visits--; s.visits > 0 {
		return
	}
	if s.written.delivery > 0 {
		s.removed = make(chan struct{})
		a.mu.Unlock()
		remove(m, s.written)
		a.mu.Lock()
		close(s.removed)
	}
	delete(a.shared, m)
}

// wrote notes the mark that a delivery wrote.
func (a *admission) wrote(s *share, w written) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.written = w
}
