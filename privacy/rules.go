package privacy

import (
	"fmt"
	"regexp"
	"strings"
)

// Rules say what is masked, beside credentials, which are always masked: see the package. The zero value adds nothing.
type Rules struct {
	// Metadata are the keys of metadata whose values are masked. A star stands for any characters, a question mark for
	// one. Upper and lower case are the same. Default: keys that name a secret, such as Authorization, db_password and
	// X-Api-Key.
	Metadata []string
	// Patterns are RE2 expressions. What they match is masked in all texts. If an expression has groups, only the
	// groups are masked: `customer (\w+)` keeps the word customer. Default: none.
	Patterns []string
	// Payload are JSON paths to the values that are masked in payloads: $.card.number, $..password, $.users[*].name,
	// $.rows[0], $['last name'], $.* and $ itself. Names match in upper and lower case. Default: names of secrets,
	// anywhere.
	Payload []string
	// Mask changes each text before the other rules do, but no payload. If it panics, the text is withheld. It must be
	// safe for concurrent use. Default: none.
	Mask func(text string) string
	// WithoutDefaults masks what these rules name and nothing else. Default: false.
	WithoutDefaults bool
}

const (
	maxRules   = 256
	maxPattern = 4 << 10
)

// rules are Rules made ready.
type rules struct {
	credentials bool
	mask        func(string) string
	keys        []string
	patterns    []*regexp.Regexp
	paths       []path
}

func compile(r Rules) (*rules, error) {
	c := &rules{credentials: !r.WithoutDefaults, mask: r.Mask}
	for _, list := range []struct {
		name string
		of   []string
	}{{"Metadata", r.Metadata}, {"Patterns", r.Patterns}, {"Payload", r.Payload}} {
		if len(list.of) > maxRules {
			return nil, fmt.Errorf("privacy: Rules.%s has %d entries: give at most %d", list.name, len(list.of),
				maxRules)
		}
		for i, rule := range list.of {
			if rule == "" || len(rule) > maxPattern {
				return nil, fmt.Errorf("privacy: Rules.%s[%d] has %d bytes: give 1 to %d", list.name, i, len(rule),
					maxPattern)
			}
		}
	}
	for _, key := range r.Metadata {
		c.keys = append(c.keys, strings.ToLower(key))
	}
	for i, pattern := range r.Patterns {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return nil, fmt.Errorf("privacy: Rules.Patterns[%d] is %q: %w; give an RE2 expression", i, pattern, err)
		}
		if re.MatchString("") {
			return nil, fmt.Errorf("privacy: Rules.Patterns[%d] is %q, which matches the empty text: give an expression that "+
				"needs a character", i, pattern)
		}
		c.patterns = append(c.patterns, re)
	}
	for i, text := range r.Payload {
		p, err := parsePath(text)
		if err != nil {
			return nil, fmt.Errorf("privacy: Rules.Payload[%d] is %q: %w", i, text, err)
		}
		c.paths = append(c.paths, p)
	}
	return c, nil
}

// hides reports whether the value of a metadata key is masked as a whole.
func (r *rules) hides(key string) bool {
	if r.credentials && kindOf(key) != harmless {
		return true
	}
	if len(r.keys) == 0 {
		return false
	}
	key = strings.ToLower(key[:min(len(key), maxPattern)])
	for _, glob := range r.keys {
		if matches(glob, key) {
			return true
		}
	}
	return false
}

// matches reports whether name fits glob.
func matches(glob, name string) bool {
	g, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, mark = g, n
			g++
		case g < len(glob) && (glob[g] == '?' || glob[g] == name[n]):
			g++
			n++
		case star >= 0: // the star takes one more
			mark++
			g, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(glob[g:], "*") == ""
}
