package classify

import (
	"fmt"
	"slices"
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
	case *Failure:
		// Only the context of a message decides that it was aborted.
		if m != nil && m.Verdict.Class != ClassAborted {
			return m.Verdict.sayable(), true
		}
	}
	return Verdict{}, false
}
