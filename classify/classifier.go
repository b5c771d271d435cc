package classify

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/watermill-spillway/spillway/internal/errs"
)

// Config says how errors are judged. The zero value is useful: marks and built-in knowledge alone.
type Config struct {
	// Rules are asked in order, after marks and before the built-in knowledge; the first that answers wins.
	Rules []Rule
	// Default is the class of an error that is not known. It must not be ClassDiscard or ClassAborted. Default:
	// ClassUnknown.
	Default Class
	// OnRulePanic is called for a rule, or a method of the error itself, that panicked. It is also called for a rule
	// that gave a class that no rule can give. Then there is no stack. The text is for a log.
	OnRulePanic func(text string, stack []byte)
}

// Classifier judges errors. It is safe for concurrent use, and a nil Classifier judges like the zero Config.
type Classifier struct{ config Config }

// New returns a Classifier, or an error that names the rule which is nil, or gives a class that no rule can give, or
// the default that cannot be one.
func New(config Config) (*Classifier, error) {
	for i, rule := range config.Rules {
		if rule == nil {
			return nil, fmt.Errorf("classify: Rules[%d] is nil: give a rule, such as classify.Is, or leave it out", i)
		}
		if err := rule.probe(); err != nil {
			return nil, fmt.Errorf("classify: Rules[%d]: %w", i, err)
		}
	}
	if config.Default >= ClassAborted {
		return nil, fmt.Errorf("classify: Default cannot be %q (%d): no error has that class by itself", config.Default,
			config.Default)
	}
	if config.Default == ClassDiscard {
		return nil, fmt.Errorf("classify: Default cannot be %q: every unexpected error would lose its message; mark the "+
			"errors whose messages may be dropped, or give rules for them", config.Default)
	}
	config.Rules = slices.Clone(config.Rules) // the caller may go on writing into its own
	return &Classifier{config: config}, nil
}

// Classify returns the verdict on err. It asks the marks in err, the rules, the built-in knowledge and the default, in
// this order, until one gives a class. Within marks and knowledge, the outermost answer of a chain of causes wins. Of
// joined errors, the severest class wins: invalid, permanent, transient, unknown, discard. A mark's reason, description
// and retry-after stay in any case. A branch without a mark counts as unknown, so a failure joined to a discarded error
// is not dropped with it.
func (c *Classifier) Classify(err error) Verdict {
	if err == nil {
		return Verdict{}
	}
	j := new(judgement)
	if c != nil {
		j.config = c.config
	}
	said := j.search(err, askMark, keepFilling)
	if said.Class == ClassUnknown && !j.endless {
		said = said.fill(j.askRules(err))
	}
	if said.Class == ClassUnknown {
		said = said.fill(j.search(err, askKnowledge, stopAtFirst))
	}
	if said.Class == ClassUnknown {
		said = said.fill(j.search(err, askNetwork, stopAtFirst))
	}
	if said.Class == ClassUnknown {
		said.Class = j.config.Default
	}
	return said
}

// askRules returns the first rule's answer. In an error without end it asks none: errors.Is would never return.
func (j *judgement) askRules(err error) Verdict {
	for i, rule := range j.config.Rules {
		if v, ok := j.ask(answerer(rule), err); ok {
			if err := v.unsayable(); err != nil {
				j.tell(fmt.Sprintf("classify: Rules[%d]: %v; the error counts as unknown to the rules", i, err), nil)
			}
			return v.sayable()
		}
	}
	return Verdict{}
}

// askMark judges one error by what an application, or a part further in, said of it.
func askMark(err error) (Verdict, bool) {
	switch m := err.(type) {
	case *marked:
		return m.verdict.sayable(), true
	case interface{ MarksTransient() }: // of package seal
		return Verdict{Class: ClassTransient}, true
	case *Failure:
		// Only the context of a message decides that it was aborted.
		if m != nil && m.Verdict.Class != ClassAborted {
			return m.Verdict.sayable(), true
		}
	}
	return Verdict{}, false
}

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

// judgement is the work on one error. Every method of the error and every rule is called contained: an error that
// cannot be judged must still be placed, and what its other parts say still counts.
type judgement struct {
	config  Config
	panics  int
	endless bool // the error wraps more than errs.Most errors, or itself
	left    int  // how many errors the present search may still look at
}

type (
	answerer func(error) (Verdict, bool)
	keeping  bool
)

const (
	keepFilling keeping = true  // inner answers fill what outer ones did not say
	stopAtFirst keeping = false // the outermost answer is the whole answer
)

// maxNotified bounds how many panics one error reports: each of its causes may panic.
const maxNotified = 8

func (j *judgement) search(err error, ask answerer, keep keeping) Verdict {
	j.left = errs.Most
	v, _ := j.tree(err, ask, keep)
	return v
}

// tree walks a chain of causes, outermost first, down to where it ends or branches.
func (j *judgement) tree(err error, ask answerer, keep keeping) (found Verdict, ok bool) {
	for err != nil {
		if j.left == 0 {
			j.endless = true
			return found, ok
		}
		j.left--
		if v, hit := j.ask(ask, err); hit {
			found, ok = found.fill(v), true
			if keep == stopAtFirst {
				return found, true
			}
		}
		branches, cause := j.unwrap(err)
		if branches != nil {
			v, hit := j.severest(branches, ask, keep)
			return found.fill(v), ok || hit
		}
		err = cause
	}
	return found, ok
}

// severest asks every branch of joined errors. One that has no answer counts as unknown, and so outweighs a discard.
func (j *judgement) severest(branches []error, ask answerer, keep keeping) (worst Verdict, ok bool) {
	first := true
	for _, branch := range branches {
		if branch == nil {
			continue
		}
		v, hit := j.tree(branch, ask, keep)
		more := severity(v.Class) - severity(worst.Class)
		if first || more > 0 || more == 0 && hit && !ok {
			worst = v
		}
		first, ok = false, ok || hit
	}
	return worst, ok
}

func (j *judgement) ask(ask answerer, err error) (v Verdict, ok bool) {
	defer j.contain()
	return ask(err)
}

func (j *judgement) unwrap(err error) (branches []error, cause error) {
	defer j.contain()
	branches, cause = errs.Causes(err)
	return branches, cause
}

// contain turns a panic into no answer.
func (j *judgement) contain() {
	v := recover()
	if v == nil {
		return
	}
	j.panics++
	if j.config.OnRulePanic == nil || j.panics > maxNotified {
		return
	}
	j.tell("classify: panic while judging an error: "+(&PanicError{Value: v}).Error(), debug.Stack())
}

func (j *judgement) tell(text string, stack []byte) {
	if j.config.OnRulePanic == nil {
		return
	}
	defer func() { _ = recover() }() // the hook may panic too
	j.config.OnRulePanic(text, stack)
}
