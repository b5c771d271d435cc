package classify

import (
	"fmt"
	"runtime/debug"
)

// Config says how errors are judged. The zero value is useful: marks and built-in knowledge alone.
type Config struct {
	// Rules are asked in order, after marks and before the built-in knowledge; the first that answers wins.
	Rules []Rule
	// Default is the class of an error nobody knows: ClassUnknown, or one that an application prefers.
	Default Class
	// OnRulePanic is told of a rule, or of a method of the error itself, that panicked. The text is for a log.
	OnRulePanic func(text string, stack []byte)
}

// Classifier judges errors. It is safe for concurrent use, and a nil Classifier judges like the zero Config.
type Classifier struct{ config Config }

// New returns a Classifier, or an error that names the rule which is nil or the default that cannot be one.
func New(config Config) (*Classifier, error) {
	for i, rule := range config.Rules {
		if rule == nil {
			return nil, fmt.Errorf("classify: Rules[%d] is nil", i)
		}
	}
	if config.Default >= ClassAborted {
		return nil, fmt.Errorf("classify: Default cannot be %q: it is decided from the message's context", config.Default)
	}
	return &Classifier{config: config}, nil
}

// Classify returns the verdict on err. Who speaks, in this order, until one names a class: the marks in err, the rules,
// the built-in knowledge, the default. Within marks and knowledge the outermost answer of a chain of causes wins, and
// where errors are joined every branch is asked and the severest class wins: invalid, permanent, transient, unknown,
// discard. A mark's reason, description and retry-after stay, whoever names the class.
func (c *Classifier) Classify(err error) (v Verdict) {
	if err == nil {
		return Verdict{}
	}
	var config Config
	if c != nil {
		config = c.config
	}
	v.Class = config.Default
	defer c.contain(config)

	said := search(err, askMark, keepFilling)
	if said.Class == ClassUnknown {
		for _, rule := range config.Rules {
			if answer, ok := c.ask(config, rule, err); ok {
				if answer.Class >= ClassAborted { // not for a rule to say
					answer.Class = ClassUnknown
				}
				said = said.fill(answer)
				break
			}
		}
	}
	if said.Class == ClassUnknown {
		said = said.fill(search(err, askKnowledge, stopAtFirst))
	}
	v = said.fill(Verdict{Class: config.Default})
	return v
}

func (c *Classifier) ask(config Config, rule Rule, err error) (v Verdict, ok bool) {
	defer c.contain(config)
	return rule(err)
}

// contain turns a panic into no answer: an error that cannot be judged must still be placed.
func (c *Classifier) contain(config Config) {
	v := recover()
	if v == nil || config.OnRulePanic == nil {
		return
	}
	defer func() { _ = recover() }()
	config.OnRulePanic("classify: panic while judging an error: "+(&PanicError{Value: v}).Error(), debug.Stack())
}

// Tree search

type (
	answerer func(error) (Verdict, bool)
	keeping  bool
)

const (
	keepFilling keeping = true  // inner answers fill what outer ones did not say
	stopAtFirst keeping = false // the outermost answer is the whole answer
)

// maxNodes bounds the search in errors that wrap without end.
const maxNodes = 1000

func search(err error, ask answerer, keep keeping) Verdict {
	budget := maxNodes
	v, _ := searchTree(err, ask, keep, &budget)
	return v
}

func searchTree(err error, ask answerer, keep keeping, budget *int) (found Verdict, ok bool) {
	for err != nil && *budget > 0 {
		*budget--
		if v, hit := ask(err); hit {
			found, ok = found.fill(v), true
			if keep == stopAtFirst {
				return found, true
			}
		}
		switch x := err.(type) {
		case interface{ Unwrap() error }:
			err = x.Unwrap()
		case interface{ Unwrap() []error }:
			if v, hit := severest(x.Unwrap(), ask, keep, budget); hit {
				found, ok = found.fill(v), true
			}
			return found, ok
		default:
			return found, ok
		}
	}
	return found, ok
}

func severest(branches []error, ask answerer, keep keeping, budget *int) (worst Verdict, ok bool) {
	for _, branch := range branches {
		v, hit := searchTree(branch, ask, keep, budget)
		if hit && (!ok || v.Class.severity() > worst.Class.severity()) {
			worst, ok = v, true
		}
	}
	return worst, ok
}

func askMark(err error) (Verdict, bool) {
	switch m := err.(type) {
	case *marked:
		return m.verdict, true
	case *Failure:
		// That a message went away is decided anew by whoever holds it; to anybody else its context says so.
		return m.Verdict, m.Verdict.Class != ClassAborted
	}
	return Verdict{}, false
}
