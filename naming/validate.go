package naming

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const minLength = 64

// Validate returns an error that names the field with which names would be illegal, or would not be told apart.
func (s Scheme) Validate() error {
	if s.Style < 0 || int(s.Style) >= len(styles) {
		return fmt.Errorf("naming: Scheme.Style is %d: use Dots, Dashes, Kafka or NATS", s.Style)
	}
	if s.MaxLength != 0 && s.MaxLength < minLength {
		return fmt.Errorf("naming: Scheme.MaxLength is %d: it must be at least %d, or 0 for the default", s.MaxLength,
			minLength)
	}
	for _, p := range []struct {
		field, pattern string
		allowed        []string
	}{
		{"DeadLetter", s.DeadLetter, []string{"topic", "handler", "class"}},
		{"Invalid", s.Invalid, []string{"topic", "handler", "class"}},
		{"Parked", s.Parked, []string{"topic"}},
		{"Quarantine", s.Quarantine, []string{"topic"}},
		{"Stage", s.Stage, []string{"topic", "handler", "delay"}},
		{"Reentry", s.Reentry, []string{"topic", "handler"}},
	} {
		if err := s.check(p.pattern, p.allowed); err != nil {
			return fmt.Errorf("naming: Scheme.%s is %q: %w", p.field, p.pattern, err)
		}
	}
	if err := s.distinct(); err != nil {
		return err
	}
	return s.checkNames()
}

// check returns an error for a pattern whose names could not be used.
func (s Scheme) check(pattern string, allowed []string) error {
	r, fixed, seen, texts := s.rules(), 0, []string{}, 0
	parts := parse(pattern)
	for i, p := range parts {
		switch {
		case !p.holds && strings.ContainsAny(p.text, "{}"):
			return fmt.Errorf("%q has a brace that belongs to no placeholder; use {%s}", p.text,
				strings.Join(allowed, "}, {"))
		case !p.holds && r.legal(p.text) != p.text:
			return fmt.Errorf("%q has a character that is not allowed in the style %s", p.text, s.Style)
		case !p.holds:
			fixed, texts = fixed+len(p.text), texts+1
		case !slices.Contains(allowed, p.text):
			return fmt.Errorf("{%s} is not known here; use {%s}", p.text, strings.Join(allowed, "}, {"))
		case slices.Contains(seen, p.text):
			return fmt.Errorf("{%s} is there twice; leave one out", p.text)
		case i > 0 && parts[i-1].holds:
			return fmt.Errorf("{%s} and {%s} have no text between them, so that two sources could share a name; put one there",
				parts[i-1].text, p.text)
		case p.isFixed() && touchesWord(parts, i):
			return fmt.Errorf("a letter or digit stands beside {%s}, so that two sources could share a name; put another "+
				"character there", p.text)
		case p.isFixed() && (slices.Contains(seen, "topic") || slices.Contains(seen, "handler")) &&
			holdsLater(parts[i+1:]):
			return fmt.Errorf("{%s} stands between {topic} and {handler}, so that two sources could share a name; put it "+
				"before or behind both", p.text)
		default:
			seen = append(seen, p.text)
		}
	}
	switch {
	case len(parts) == 0:
		return nil // the default
	case texts == 0:
		return fmt.Errorf("the topic would be the source itself, or could not be recognised; add text, such as {topic}.dlq")
	case fixed > s.max()-minLength/2:
		return fmt.Errorf("its text has %d bytes, which leaves no room for the topic's name; a name has at most %d",
			fixed,
			s.max())
	}
	return nil
}

// isFixed reports whether the part stands for one of a few words, or for a delay.
func (p part) isFixed() bool { return p.holds && (p.text == "class" || p.text == "delay") }

// touchesWord reports whether the text beside part i goes on with a letter or digit there.
func touchesWord(parts []part, i int) bool {
	isWord := func(c byte) bool { return c != '-' && c != '_' && plain(rune(c)) }
	return i > 0 && isWord(parts[i-1].text[len(parts[i-1].text)-1]) ||
		i+1 < len(parts) && !parts[i+1].holds && isWord(parts[i+1].text[0])
}

// holdsLater reports whether a topic or handler is among the parts.
func holdsLater(parts []part) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return p.holds && !p.isFixed() })
}

// distinct returns an error if topics of two kinds could be one.
func (s Scheme) distinct() error {
	kinds := []struct{ field, pattern string }{
		{"DeadLetter", s.deadLetter()}, {"Invalid", s.invalid()}, {"Parked", s.parked()},
		{"Quarantine", s.quarantine()},
		{"Stage", s.stage()}, {"Reentry", s.reentry()},
	}
	for i, a := range kinds {
		for _, b := range kinds[i+1:] {
			if a.pattern == b.pattern && b.field != "Invalid" {
				return fmt.Errorf("naming: Scheme.%s and Scheme.%s are both %q: give topics of each kind a name of their own",
					a.field, b.field, a.pattern)
			}
		}
	}
	waiting := Source{Topic: "orders", Handler: "billing", Delay: 5 * time.Second}
	for _, delay := range []time.Duration{0, waiting.Delay} {
		waiting.Delay = delay
		if topic := s.StageTopic(waiting); s.Inside().IsDeadLetter(topic) {
			return fmt.Errorf("naming: Scheme names %q for a stage, which is also the name of a dead-letter topic: its "+
				"messages would be parked; change Stage and Reentry, or DeadLetter", topic)
		}
	}
	return nil
}

func (s Scheme) checkNames() error {
	keys := map[string]string{}
	for name, given := range s.Names {
		switch other, taken := keys[given]; {
		case name == "" || given == "":
			return fmt.Errorf("naming: Scheme.Names has %q for %q: neither may be empty", given, name)
		case taken:
			return fmt.Errorf("naming: Scheme.Names has %q for %q and %q: use a pattern without a placeholder for one topic "+
				"of many sources", given, min(name, other), max(name, other))
		case s.rules().legal(given) != given || len(given) > s.max():
			return fmt.Errorf("naming: Scheme.Names has %q for %q: it is longer than %d bytes, or has a character that is not "+
				"allowed in the style %s", given, name, s.max(), s.Style)
		}
		keys[given] = name
	}
	return nil
}
