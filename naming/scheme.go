package naming

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/watermill-spillway/spillway/internal/errs"
)

// Scheme names every topic that is derived from a live topic. The zero value is the default. Two sources never share a
// name, except where a pattern leaves out what distinguishes them.
//
// In a pattern {topic} is the live topic, or for Parked and Quarantine the dead-letter topic. {handler} is the
// handler's name in the router. {class} is the class of the failure, such as permanent. {delay} is the delay of the
// stage, such as 5s. A pattern for letters has {topic}, {handler} and {class}; one for stages has {topic}, {handler}
// and {delay}. A pattern without a placeholder is one topic for all.
type Scheme struct {
	// Style says how the default patterns are joined, and which names the broker allows. Default: Dots.
	Style Style
	// DeadLetter is the pattern of dead-letter topics. No live topic, and no name made of one, may begin and end as it
	// does. Default: {topic}.dlq.
	DeadLetter string
	// Invalid is the pattern of dead-letter topics for invalid messages. Default: DeadLetter if that is set, otherwise
	// {topic}.invalid.
	Invalid string
	// Parked is the pattern of topics for letters that are not redriven, or whose consumer failed. Default:
	// {topic}.parked.
	Parked string
	// Quarantine is the pattern of topics for letters that were redriven too often. Default: {topic}.quarantine.
	Quarantine string
	// Stage is the pattern of stage topics. It needs {topic} and {handler}. Default: {topic}.{handler}.retry.{delay}.
	Stage string
	// Reentry is the pattern of the topics that messages come back to from a delay store. It needs {topic} and
	// {handler}. Default: {topic}.{handler}.retry.
	Reentry string
	// Names are names that no pattern gives. A key is the name by pattern, a value the name to use. No two keys may
	// have one value. Default: none.
	Names map[string]string
	// MaxLength is the greatest length of a name in bytes. Longer names are cut. It must be at least 64. Default: 249,
	// or 200 for NATS.
	MaxLength int
}

// Source is what a name is made of.
type Source struct {
	// Topic is the topic that the handler subscribes to.
	Topic string
	// Handler is the name of the handler in the router.
	Handler string
	// Class is the classify.Class of a failure that becomes a letter.
	Class errs.Class
	// Delay is that of a stage, or 0 for the topic that messages come back to from a delay store.
	Delay time.Duration
}

// DeadLetterTopic names the topic for the dead letters of a source.
func (s Scheme) DeadLetterTopic(source Source) string {
	if source.Class == errs.Invalid {
		return s.name(s.invalid(), source)
	}
	return s.name(s.deadLetter(), source)
}

// ParkedTopic names the topic for letters of a dead-letter topic that are not redriven, or whose consumer failed.
func (s Scheme) ParkedTopic(deadLetters string) string {
	return s.name(s.parked(), Source{Topic: deadLetters})
}

// QuarantineTopic names the topic for letters of a dead-letter topic that were redriven too often.
func (s Scheme) QuarantineTopic(deadLetters string) string {
	return s.name(s.quarantine(), Source{Topic: deadLetters})
}

// StageTopic names the topic where messages wait, or come back to if the delay is 0.
func (s Scheme) StageTopic(source Source) string {
	if source.Delay == 0 {
		return s.name(s.reentry(), source)
	}
	return s.name(s.stage(), source)
}

func (s Scheme) deadLetter() string {
	return cmp.Or(s.DeadLetter, "{topic}"+s.rules().word+"dlq")
}

func (s Scheme) invalid() string {
	return cmp.Or(s.Invalid, s.DeadLetter, "{topic}"+s.rules().word+"invalid")
}

func (s Scheme) parked() string {
	return cmp.Or(s.Parked, "{topic}"+s.rules().word+"parked")
}

func (s Scheme) quarantine() string {
	return cmp.Or(s.Quarantine, "{topic}"+s.rules().word+"quarantine")
}

func (s Scheme) stage() string {
	r := s.rules()
	return cmp.Or(s.Stage, "{topic}"+r.join+"{handler}"+r.word+"retry"+r.word+"{delay}")
}

func (s Scheme) reentry() string {
	r := s.rules()
	return cmp.Or(s.Reentry, "{topic}"+r.join+"{handler}"+r.word+"retry")
}

// written writes a delay as names have it: 5s, 1m, 1h30m, 1500ms. It has letters and digits only.
func written(d time.Duration) string {
	text := d.String()
	if strings.Contains(text, ".") || strings.Contains(text, "µ") {
		for _, unit := range []struct {
			of   time.Duration
			name string
		}{{time.Millisecond, "ms"}, {time.Microsecond, "us"}, {time.Nanosecond, "ns"}} {
			if d%unit.of == 0 {
				return strconv.FormatInt(int64(d/unit.of), 10) + unit.name
			}
		}
	}
	if strings.HasSuffix(text, "m0s") {
		text = text[:len(text)-2]
	}
	if strings.HasSuffix(text, "h0m") {
		text = text[:len(text)-2]
	}
	return text
}

// Style says how the parts of names are joined, and which names the broker allows.
type Style int

const (
	// Dots joins with dots: orders.dlq. Every printable character is allowed.
	Dots Style = iota
	// Dashes joins with dashes: orders-dlq, and orders--billing-retry-5s. Every printable character is allowed.
	Dashes
	// Kafka joins with dots. ASCII letters, digits and ". _ -" are allowed. Kafka refuses a topic whose name differs
	// from that of another in "." and "_" alone, so a handler's name with "_" is changed too.
	Kafka
	// NATS joins with dashes. ASCII letters, digits and "_ -" are allowed, because the name of a stream or a durable
	// consumer has neither dots, spaces, "*", ">" nor slashes.
	NATS
)

// String returns the style's name in lower case.
func (s Style) String() string {
	if s < 0 || int(s) >= len(styles) {
		return "unknown"
	}
	return styles[s].name
}

// rules are what a style means.
type rules struct {
	name       string
	word       string // in front of a word, such as dlq
	join       string // between topic and handler
	substitute rune   // for what is not allowed
	allowed    func(rune) bool
	fold       func(string) string // makes names equal that the broker takes for one
	max        int
}

// kafkaMax is the greatest length of a topic in Kafka. RabbitMQ allows 255 bytes. natsMax leaves room for a prefix: a
// NATS server allows 255 bytes for streams and consumers.
const kafkaMax, natsMax = 249, 200

var styles = []rules{
	Dots:   {"dots", ".", ".", '_', unicode.IsPrint, unfolded, kafkaMax},
	Dashes: {"dashes", "-", "--", '_', unicode.IsPrint, unfolded, kafkaMax},
	Kafka:  {"kafka", ".", ".", '-', func(r rune) bool { return plain(r) || r == '.' }, foldKafka, kafkaMax},
	NATS:   {"nats", "-", "--", '_', plain, unfolded, natsMax},
}

func (s Scheme) rules() *rules {
	if s.Style < 0 || int(s.Style) >= len(styles) { // Validate refuses it
		return &styles[Dots]
	}
	return &styles[s.Style]
}

func (s Scheme) max() int {
	if s.MaxLength > 0 {
		return s.MaxLength
	}
	return s.rules().max
}

func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

func unfolded(name string) string { return name }

// foldKafka is what Kafka makes of a name for its metrics.
func foldKafka(name string) string { return strings.ReplaceAll(name, ".", "_") }

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
		if topic := s.StageTopic(waiting); s.IsDeadLetter(topic) {
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
