package classify

import "errors"

// Rule gives its verdict on an error, or false when it has none. It sees the whole error, with all it wraps.
// A rule that panics has no verdict. New asks each rule once, about an error of its own.
type Rule func(err error) (Verdict, bool)

// Is is the rule for a sentinel: it answers where errors.Is(err, target) does, in causes and joined errors too.
func Is(target error, v Verdict) Rule {
	return func(err error) (Verdict, bool) { return v, err == errProbe || errors.Is(err, target) }
}

// As is the rule for an error type: it answers where errors.As finds an E, in causes and joined errors too.
func As[E error](v Verdict) Rule {
	return func(err error) (Verdict, bool) {
		var target E
		return v, err == errProbe || errors.As(err, &target)
	}
}

// AsFunc is like As, and lets the verdict depend on the error found, as a status code or a retry-after does.
func AsFunc[E error](verdict func(E) (Verdict, bool)) Rule {
	return func(err error) (Verdict, bool) {
		var target E
		if !errors.As(err, &target) {
			return Verdict{}, false
		}
		return verdict(target)
	}
}

// When is the rule for a predicate over the whole error.
func When(predicate func(error) bool, v Verdict) Rule {
	return func(err error) (Verdict, bool) { return v, err == errProbe || predicate(err) }
}

// errProbe is what New asks each rule about: those of this package answer with their verdict.
var errProbe = errors.New("classify: New asks the rule for its verdict")

// probe returns an error if the rule gives a class that no rule can give. A rule of an application's own that has no
// answer, or panics, is heard when there is an error.
func (r Rule) probe() error {
	v, ok := new(judgement).ask(answerer(r), errProbe)
	if ok {
		return v.unsayable()
	}
	return nil
}
