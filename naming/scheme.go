package naming

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/watermill-spillway/spillway/classify"
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
	// Stage is the pattern of stage topics. Without {handler}, stages of several handlers share a topic, which needs
	// stages.Config.SharedTopics. Default: {topic}.{handler}.retry.{delay}.
	Stage string
	// Reentry is the pattern of the topics that messages come back to from a delay store. Default:
	// {topic}.{handler}.retry.
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
	// Class is the class of a failure that becomes a letter.
	Class classify.Class
	// Delay is that of a stage, or 0 for the topic that messages come back to from a delay store.
	Delay time.Duration
}

// DeadLetterTopic names the topic for the dead letters of a source.
func (s Scheme) DeadLetterTopic(source Source) string {
	if source.Class == classify.ClassInvalid {
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
	return or(s.DeadLetter, "{topic}"+s.rules().word+"dlq")
}

func (s Scheme) invalid() string {
	return or(s.Invalid, or(s.DeadLetter, "{topic}"+s.rules().word+"invalid"))
}

func (s Scheme) parked() string {
	return or(s.Parked, "{topic}"+s.rules().word+"parked")
}

func (s Scheme) quarantine() string {
	return or(s.Quarantine, "{topic}"+s.rules().word+"quarantine")
}

func (s Scheme) stage() string {
	r := s.rules()
	return or(s.Stage, "{topic}"+r.join+"{handler}"+r.word+"retry"+r.word+"{delay}")
}

func (s Scheme) reentry() string {
	r := s.rules()
	return or(s.Reentry, "{topic}"+r.join+"{handler}"+r.word+"retry")
}

func or(pattern, otherwise string) string {
	if pattern != "" {
		return pattern
	}
	return otherwise
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
	substitute string // for what is not allowed
	allowed    func(rune) bool
	fold       func(string) string // makes names equal that the broker takes for one
	max        int
}

// kafkaMax is the greatest length of a topic in Kafka. RabbitMQ allows 255 bytes. natsMax leaves room for a prefix: a
// NATS server allows 255 bytes for streams and consumers.
const kafkaMax, natsMax = 249, 200

var styles = []rules{
	Dots:   {"dots", ".", ".", "_", unicode.IsPrint, unfolded, kafkaMax},
	Dashes: {"dashes", "-", "--", "_", unicode.IsPrint, unfolded, kafkaMax},
	Kafka:  {"kafka", ".", ".", "-", func(r rune) bool { return plain(r) || r == '.' }, foldKafka, kafkaMax},
	NATS:   {"nats", "-", "--", "_", plain, unfolded, natsMax},
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
