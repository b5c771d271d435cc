package naming

import (
	"strings"
	"unicode"
)

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
