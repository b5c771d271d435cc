package privacy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// MaxText is the length of the longest text that Text returns, in bytes. Of a longer text the head is kept, and the cut
// is marked.
const MaxText = 64 << 10

// overlap is how far behind a cut a secret is looked at that begins before the cut.
const overlap = 4 << 10

// withheld stands for what a Redactor failed over: it may be the very secret.
const withheld = "[withheld: the mask panicked]"

// passes bounds how often a masked text is looked at again: a mark can stand where it joins what was apart.
const passes = 4

// Redactor masks what is shown of messages. It is made by New or None. A nil *Redactor masks credentials. It
// is safe for concurrent use. It never panics: what it cannot mask, it withholds.
type Redactor struct {
	rules *rules // nil masks nothing
}

var (
	byDefault = &Redactor{rules: &rules{credentials: true}}
	none      = &Redactor{}
)

// New returns a Redactor that masks credentials and what rules name, or an error that names the rule that is wrong.
func New(rules Rules) (*Redactor, error) {
	compiled, err := compile(rules)
	if err != nil {
		return nil, err
	}
	return &Redactor{rules: compiled}, nil
}

// None returns a Redactor that masks nothing.
func None() *Redactor { return none }

func (r *Redactor) orDefault() *Redactor {
	if r == nil {
		return byDefault
	}
	return r
}

// Text returns text with Mark in the place of each secret: the text of an error, of a panic, a stack, a field of a log
// line. Text that has no secret is returned as it is, up to MaxText. Mask a text before you cut it: half of a secret is
// not known as one.
func (r *Redactor) Text(text string) (masked string) {
	defer func() {
		if recover() != nil {
			masked = withheld
		}
	}()
	return r.orDefault().text(text)
}

func (r *Redactor) text(text string) string {
	if r.rules == nil {
		return text
	}
	if mask := r.rules.mask; mask != nil && text != "" {
		text = mask(text)
	}
	if len(text) <= MaxText {
		masked := r.rules.masked(text)
		if len(masked) <= MaxText { // a mark can be longer than the secret
			return masked
		}
		return boundedtext.Text(masked, MaxText)
	}
	const room = 64 // for the mark of the cut
	masked := r.rules.masked(text[:min(len(text), MaxText+overlap)])
	return boundedtext.Text(masked, MaxText-room) + "…[cut, " + strconv.Itoa(len(text)) + " bytes in all]"
}

// Error returns an error whose text is that of err, masked. It wraps err: errors.Is and errors.As find what they find
// in err. Whatever prints the error with %v, or calls Error, sees the masked text alone. Error returns nil for nil.
func (r *Redactor) Error(err error) error {
	if r = r.orDefault(); err == nil || r.rules == nil {
		return err
	}
	if masked, ok := err.(*maskedError); ok && masked.by == r {
		return err
	}
	return &maskedError{err, r}
}

// maskedError shows the text of an error masked.
type maskedError struct {
	err error
	by  *Redactor
}

func (e *maskedError) Error() string { return e.by.Text(boundedtext.Error(e.err, MaxText+overlap)) }

func (e *maskedError) Unwrap() error { return e.err }

// Metadata returns the value of a metadata key as it may be shown: Mark if the rules name the key, else the value with
// its secrets masked.
func (r *Redactor) Metadata(key, value string) string {
	if r = r.orDefault(); value != "" && r.rules != nil && r.rules.hides(key) {
		return Mark
	}
	return r.Text(value)
}

// Payload returns a payload as it may be shown. If it is JSON, each value that a path or the name of a secret leads to
// is Mark, secrets within other texts are masked, and the rest keeps its bytes. JSON that is broken or cut is shown up
// to the break. Any other payload is masked as a text, whatever its length. Payload never changes the bytes that it is
// called with.
func (r *Redactor) Payload(payload []byte) (masked []byte) {
	if r = r.orDefault(); r.rules == nil || len(payload) == 0 {
		return payload
	}
	defer func() {
		if recover() != nil {
			masked = []byte(withheld)
		}
	}()
	return r.rules.payload(payload)
}

// masked returns text without secrets. A text in which each mark makes another is withheld as a whole.
func (r *rules) masked(text string) string {
	for range passes {
		found := r.find(text, 0).merged(text)
		if len(found) == 0 {
			return text
		}
		text = found.masked(text)
	}
	if len(r.find(text, 0).merged(text)) > 0 {
		return Mark
	}
	return text
}

// deepest is how many encodings are undone, one inside the other.
const deepest = 2

// find returns the secrets of text, also those that are encoded for a URL, escaped as in JSON or a Go string, or in
// base64.
func (r *rules) find(text string, depth int) spans {
	var found spans
	if r.credentials {
		findPairs(text, &found)
		findTokens(text, &found)
		findForms(text, &found)
		findURLs(text, &found)
		findAddresses(text, &found)
		findCards(text, &found)
	}
	for _, pattern := range r.patterns {
		for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
			found.addGroups(at, 0)
		}
	}
	if depth == deepest {
		return found
	}
	for _, v := range viewsOf(text) {
		clear := string(v.text)
		for _, one := range r.find(clear, depth+1).merged(clear) {
			found.add(v.span(one))
		}
	}
	findBase64(text, &found, func(clear string) bool { return len(r.find(clear, depth+1).merged(clear)) > 0 })
	return found
}

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
	keys        []*regexp.Regexp
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
		glob := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(key))
		c.keys = append(c.keys, regexp.MustCompile(`(?is)^`+glob+`$`))
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
	key = key[:min(len(key), maxPattern)]
	return r.credentials && kindOf(key) != harmless ||
		slices.ContainsFunc(r.keys, func(glob *regexp.Regexp) bool { return glob.MatchString(key) })
}
