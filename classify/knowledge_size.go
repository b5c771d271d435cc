package classify

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// refusedForSize judges by ErrTooLarge, types and codes, without importing a client. Words count only if no error in
// the tree is of a client that has codes: "message of length 352518912 too large or too small" is what sarama says of a
// TLS listener.
func refusedForSize(err error) bool {
	known, large := sizeOf(err)
	return large || !known && saysSize(err)
}

// sizeOf asks types and codes. An error that panics is known, and of no size.
func sizeOf(err error) (known, large bool) {
	defer func() {
		if recover() != nil {
			known, large = true, false
		}
	}()
	nodes := 0
	return searchSize(err, &nodes)
}

func saysSize(err error) bool {
	text := strings.ToLower(quoted.ReplaceAllString(boundedtext.Error(err, 1<<10), ""))
	return slices.ContainsFunc(sizeWords, func(words string) bool { return strings.Contains(text, words) })
}

// quoted are the quoted parts of a text, which are names. A single quote beside a letter is an apostrophe.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|` + "`[^`]*`" + `|\B'(?:[^']|'\b)*'\B`)

// sizeWords are those of clients that have no type or code for it.
var sizeWords = []string{
	"message too large", "message is too large", "message was too large", "message size too large", "message_too_large",
	"payload too large", "request entity too large", "message larger than", "larger than the max",
	"maximum payload exceeded", // a NATS client
	// NATS JetStream: of a stream, of all headers
	"message size exceeds maximum allowed", "header size exceeds maximum",
	"exceeds maximum allowed size", "invalid bulk length", // Redis
	"item size exceeds bundle byte limit", "payload size exceeds the limit", // Google Cloud Pub/Sub
	"exceeds the maximum allowed size", "longer than 1048487 bytes", // Firestore: of a document, of a property
	"message must be shorter than", "message too long", // Amazon SQS and SNS
	"message size exceeds maxmessagesize", // Pulsar
	"packet for query is too large",       // go-sql-driver/mysql, before it sends
	"string or blob too big",              // SQLite
}

const maxSizeNodes = 100 // of a tree of errors, which may be endless

// searchSize reports whether err or one that it wraps is of a client with codes, and whether one of them is for size.
func searchSize(err error, nodes *int) (known, large bool) {
	for one := range errs.All(err) {
		if *nodes++; *nodes > maxSizeNodes {
			break
		}
		k, l := sizeCode(one)
		known, large = known || k, large || l
		for _, inner := range foreign.Listed(one) {
			k, l := searchSize(inner, nodes)
			known, large = known || k, large || l
		}
	}
	return known, large
}

// sizeCode judges one error by itself.
func sizeCode(err error) (known, large bool) {
	if err == ErrTooLarge {
		return true, true
	}
	if e, ok := err.(interface{ Is(error) bool }); ok && e.Is(ErrTooLarge) {
		return true, true
	}
	switch e := err.(type) {
	case syscall.Errno:
		return e == syscall.EMSGSIZE, e == syscall.EMSGSIZE
	case interface{ SQLState() string }: // pgx, lib/pq
		return true, e.SQLState() == "54000" // program_limit_exceeded
	case interface{ TooLarge() bool }:
		return true, e.TooLarge()
	case interface{ HTTPStatusCode() int }:
		code := e.HTTPStatusCode()
		return code != 400, code == 413 // Amazon says 400 and words
	}
	e := foreign.ErrorOf(err)
	switch code := e.Code(); e.Kind {
	case foreign.Kafka: // MESSAGE_TOO_LARGE and RECORD_LIST_TOO_LARGE
		return true, code == 10 || code == 18
	case foreign.KafkaConfig:
		return true, strings.Contains(err.Error(), "larger than")
	case foreign.KafkaEncode:
		return true, strings.Contains(e.Text(), "invalid request size")
	case foreign.KafkaDecode:
		return true, false
	case foreign.AMQP: // content-too-large, or over max_message_size
		return true, code == 311 || code == 406 && strings.Contains(e.Text(), "larger than")
	case foreign.MySQL: // max_allowed_packet, row size
		return true, code == 1153 || code == 1118
	case foreign.SQLite:
		return true, code == sqliteTooBig
	}
	return false, false
}

const sqliteTooBig = 18

var (
	// ErrTooLarge is wrapped by a publisher's error to say that a message was refused for its size, which is permanent.
	// For errors of a publisher that you do not change, give a rule with Verdict.TooLarge.
	ErrTooLarge = errors.New("message too large")
	// ErrRefused is wrapped by a publisher's error to say that it can never accept this message because of its content:
	// a header, a property, an id. A poison.Queue then offers the letter to its fallbacks, and at last publishes less
	// and less of it.
	ErrRefused = errors.New("message refused for what it carries")
)

// IsTooLarge reports whether a publisher's error is a refusal for size: by the first rule that answers, or by
// the built-in knowledge. This knows ErrTooLarge, a method TooLarge() bool of the error, and the types
// and codes of the clients of Kafka, AMQP and SQL. The text of an error counts only for clients without types and
// codes, such as those of NATS and Redis.
//
// Every part of Spillway that publishes asks this method: letters are cut, or go elsewhere; stages, the delay store,
// outputs and redrives set the message aside, and do not try it again and again.
func (c *Classifier) IsTooLarge(err error) bool {
	if err == nil {
		return false
	}
	j := new(judgement)
	if c != nil {
		j.config = c.config
	}
	if j.search(err, askMarkedSize, stopAtFirst).TooLarge {
		return true
	}
	return !j.endless && j.askRules(err).TooLarge || refusedForSize(err)
}

// askMarkedSize answers only for a mark TooLarge: such a mark counts under another one, and beside errors that are
// joined to it.
func askMarkedSize(err error) (Verdict, bool) {
	v, ok := askMark(err)
	return v, ok && v.TooLarge
}
