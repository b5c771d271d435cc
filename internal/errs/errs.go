// Package errs has the classes of errors, and the walker over what an error wraps. There is one walker: it comes to an
// end in an error that wraps itself, and goes on if a method of an error panics.
package errs

import "iter"

// Most bounds how many errors are looked at. It leaves room for a batch of thousands joined into one.
const Most = 1 << 16

// Causes returns what err wraps: its cause, or the errors that it joins. It calls a method of err, which may panic.
func Causes(err error) (joined []error, cause error) {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return nil, e.Unwrap()
	case interface{ Unwrap() []error }:
		return e.Unwrap(), nil
	}
	return nil, nil
}

// All yields err and all that it wraps, each error before its causes. A method Unwrap that panics has no causes.
func All(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		left := Most
		all(err, &left, yield)
	}
}

func all(err error, left *int, yield func(error) bool) bool {
	for err != nil {
		if *left--; *left < 0 || !yield(err) {
			return false
		}
		joined, cause := contained(err)
		for _, one := range joined {
			if !all(one, left, yield) {
				return false
			}
		}
		err = cause
	}
	return true
}

// First yields err and its first causes, outermost first: of errors that are joined, the first.
func First(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		for range Most {
			if err == nil || !yield(err) {
				return
			}
			joined, cause := contained(err)
			if len(joined) > 0 {
				cause = joined[0]
			}
			err = cause
		}
	}
}

func contained(err error) (joined []error, cause error) {
	defer func() { _ = recover() }()
	return Causes(err)
}

// Find returns the outermost T, a type of pointers, in err. It leaves out pointers that are nil.
func Find[T error](err error) (found T, ok bool) {
	var none T
	for one := range All(err) {
		if t, is := one.(T); is && any(t) != any(none) {
			return t, true
		}
	}
	return none, false
}
