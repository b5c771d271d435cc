package classify

import "errors"

// ErrTooLarge is wrapped by a publisher's error to say that a message was refused for its size. Package poison has it
// under the same name.
var ErrTooLarge = errors.New("message too large")

// TooLarge marks a publisher's error as a refusal for size, which is permanent. Use it in a publisher of your own whose
// client has an error for it. For errors of a publisher that you do not change, give a rule: Verdict{Class:
// ClassPermanent, TooLarge: true}.
func TooLarge(err error, opts ...Option) error {
	return mark(err, ClassPermanent, append([]Option{func(v *Verdict) { v.TooLarge = true }}, opts...))
}

// IsTooLarge reports whether a publisher's error is a refusal for size: by a mark TooLarge, by the first rule that
// answers, or by the built-in knowledge. This knows ErrTooLarge, a method TooLarge() bool of the error, and the types
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
