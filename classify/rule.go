package classify

import "errors"

// Rule gives its verdict on an error, or false if it has none. It sees the whole error, with all it wraps. A predicate
// is written as a Rule:
//
//	func(err error) (classify.Verdict, bool) { return verdict, isLocked(err) }
//
// A rule that panics has no verdict. New calls each rule once, with an error of its own.
type Rule func(err error) (Verdict, bool)

// Is is the rule for a sentinel: it answers if errors.Is(err, target), in causes and joined errors too.
func Is(target error, v Verdict) Rule {
	return func(err error) (Verdict, bool) { return v, err == errProbe || errors.Is(err, target) }
}

// As is the rule for an error type: verdict is called with the E that errors.As finds, in causes and joined errors too.
// The zero Verdict is no answer. New calls verdict once with the zero E, and expects a panic for a nil pointer.
//
//	classify.As(func(e *smtp.Error) classify.Verdict { return classify.Verdict{Class: classOf(e.Code)} })
func As[E error](verdict func(E) Verdict) Rule {
	return func(err error) (Verdict, bool) {
		var target E
		if err != errProbe && !errors.As(err, &target) {
			return Verdict{}, false
		}
		v := verdict(target)
		return v, v != Verdict{}
	}
}

// errProbe is what New calls each rule with: those of this package answer with their verdict.
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
