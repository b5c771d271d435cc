package classify

import "errors"

var (
	// ErrTooLarge is wrapped by a publisher's error to say that a message was refused for its size, which is permanent.
	// For errors of a publisher that you do not change, give a rule with Verdict.TooLarge.
	ErrTooLarge = errors.New("message too large")
	// ErrRefused is wrapped by a publisher's error to say that it can never accept this message because of its content:
	// a header, a property, an id. A poison.Queue then offers the letter to its fallbacks, and at last publishes less
	// and less of it.
	ErrRefused = errors.New("message refused for what it carries")
)

// IsTooLarge reports whether a publisher's error is a refusal for size: by the first rule that answers, or by
// the built-in knowledge. This knows ErrTooLarge, a method TooLarge() bool of the error, and the types
// and codes of the clients of Kafka, AMQP and SQL. The text of an error counts only for clients without types and
// codes, such as those of NATS and Redis.
//
// Every part of Spillway that publishes asks this method: letters are cut, or go elsewhere; stages, the delay store,
// outputs and redrives set the message aside, and do not try it again and again.
func (c *Classifier) IsTooLarge(err error) bool {
	if err == nil {
		return false
	}
	j := new(judgement)
	if c != nil {
		j.config = c.config
	}
	if j.search(err, askMarkedSize, stopAtFirst).TooLarge {
		return true
	}
	return !j.endless && j.askRules(err).TooLarge || refusedForSize(err)
}

// askMarkedSize answers only for a mark TooLarge: such a mark counts under another one, and beside errors that are
// joined to it.
func askMarkedSize(err error) (Verdict, bool) {
	v, ok := askMark(err)
	return v, ok && v.TooLarge
}
