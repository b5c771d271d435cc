package wmsql

// trouble is what a message has caused.
type trouble struct {
	nacks  count
	cuts   count
	losses count // that no message is known to have caused
}

// maxLosses times maxDeliveries is how many deliveries a message has if each time its transaction is lost for another
// reason than its handler. After so many the message is to blame, because it crashes the server for example.
const maxLosses = 10

// exhausted reports whether a message was delivered as often as it may be.
func (s *subscription) exhausted(e *entry) bool {
	most := s.of.config.maxDeliveries
	return e.cuts.of(e.at) >= most || e.losses.of(e.at)/maxLosses >= most
}

// count counts what happens to one message in a row.
type count struct {
	at position
	n  int
}

func (c *count) add(at position) int {
	if c.at != at {
		*c = count{at: at}
	}
	c.n++
	return c.n
}

func (c *count) of(at position) int {
	if c.at != at {
		return 0
	}
	return c.n
}

// undone counts a message with which the transaction was rolled back, and returns the reason.
func (s *subscription) undone(t *transaction, e *entry, how outcome, shuts uint64) error {
	s.alone = s.of.config.Batch
	over, uncounted := t.fate()
	switch {
	case how == rolledBack && s.refusedFor(shuts):
	case uncounted:
		e.losses.add(e.at)
	default:
		e.cuts.add(e.at)
	}
	return over
}
