package wmamqp

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// The flags of a queue, under the names that the broker gives them when it compares arguments.
const (
	durable    = "durable"
	autoDelete = "auto_delete"
	exclusive  = "exclusive"
)

// maxLessons is how many arguments of one queue are learned: more than the broker compares.
const maxLessons = 40

// takeExisting accepts a queue that is there with other arguments, if it keeps what it confirms. refusal is the
// broker's answer to a declaration with the arguments wanted.
func (p *Publisher) takeExisting(conn *amqp091.Connection, queue string, wanted amqp091.Table, refusal error) error {
	arguments, rest := learn(wanted, refusal, func(arguments amqp091.Table) error {
		return declare(conn, queue, arguments)
	})
	if arguments[amqp091.QueueTypeArg] == amqp091.QueueTypeStream {
		return streamRefused(queue, undrained)
	}
	fields := logging.Fields{logging.Queue: queue, logging.Error: refusal.Error()}
	if dropping := drops(arguments, majorVersion(conn.Properties)); dropping != "" {
		if !p.config.AllowLossyTopics {
			return fmt.Errorf("wmamqp: queue %q is there, %s, and loses letters that it confirmed: delete it, so that it is "+
				"declared anew, use another queue, or set PublisherConfig.AllowLossyTopics", queue, dropping)
		}
		fields["loses"] = dropping
	}
	if rest == nil {
		logging.QueueDiffers.Write(p.config.Logger, nil, fields)
		return nil
	}
	found := onChannel(conn, func(c *amqp091.Channel) error {
		_, err := c.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	if found != nil {
		return fmt.Errorf("wmamqp: queue %q can neither be declared nor found: declare it, durable and without expiry, or "+
			"let this user do so: %w", queue, errors.Join(refusal, found))
	}
	fields[logging.Error] = rest.Error()
	logging.QueueUnknown.Write(p.config.Logger, nil, fields)
	return nil
}

func declare(conn *amqp091.Connection, queue string, arguments amqp091.Table) error {
	return onChannel(conn, func(c *amqp091.Channel) error {
		_, err := c.QueueDeclare(queue, true, false, false, false, arguments)
		return err
	})
}

// learn finds the arguments of a queue. A passive declaration does not show them, but the refusal of another one names
// the first argument that differs and its value; with that value the next declaration gets further, until one is
// accepted. rest is why it was not accepted in the end: then there may be arguments that are not among those returned.
func learn(wanted amqp091.Table, refusal error,
	declare func(amqp091.Table) error) (arguments amqp091.Table, rest error) {
	arguments, seen := maps.Clone(wanted), make(map[string]int)
	for range maxLessons {
		if refusal == nil {
			return arguments, nil
		}
		name, current, ok := inequivalent(refusal)
		if name == "" {
			return arguments, refusal
		}
		seen[name]++
		switch {
		case name == durable || name == autoDelete || name == exclusive:
			arguments[name] = current // no argument: nothing more can be learned
			return arguments, refusal
		case ok && seen[name] == 1:
			set(arguments, name, current)
		case name == amqp091.QueueTypeArg && seen[name] <= len(queueTypes): // the answer was cut
			set(arguments, name, queueTypes[seen[name]-1])
		default:
			arguments[name] = current
			return arguments, refusal
		}
		refusal = declare(arguments)
	}
	return arguments, refusal
}

func set(arguments amqp091.Table, name string, value any) {
	if value == nil {
		delete(arguments, name)
		return
	}
	arguments[name] = value
}

var queueTypes = []any{nil, amqp091.QueueTypeClassic, amqp091.QueueTypeQuorum, amqp091.QueueTypeStream}

// unseen is the value of an argument in an answer that the broker cut to AMQP's 255 bytes.
const unseen = "(not shown)"

// inequivalent reads the broker's answer to a declaration with other arguments, for example
//
//	PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but current is the value '3' of type 'signedint'
//
// name is that of the argument, or empty for another answer. current is the value that the queue has: nil for none, and
// unseen, and not ok, if the answer was cut.
func inequivalent(err error) (name string, current any, ok bool) {
	var refusal *amqp091.Error
	if !errors.As(err, &refusal) || refusal.Code != amqp091.PreconditionFailed {
		return "", nil, false
	}
	_, rest, found := strings.Cut(refusal.Reason, "inequivalent arg '")
	name, rest, named := strings.Cut(rest, "'")
	if !found || !named {
		return "", nil, false
	}
	const is = " but current is "
	at := strings.LastIndex(rest, is) // the queue's name is before it
	if at < 0 || strings.HasSuffix(rest, "...") {
		return name, unseen, false
	}
	value := rest[at+len(is):]
	if value == "none" {
		return name, nil, true
	}
	value, kind := strings.TrimPrefix(value, "the value "), ""
	if at := strings.LastIndex(value, " of type "); at >= 0 {
		value, kind = value[:at], strings.Trim(value[at+len(" of type "):], "'")
	}
	value = strings.TrimSuffix(strings.TrimPrefix(value, "'"), "'")
	switch kind {
	case "longstr", "":
		return name, value, true
	case "bool":
		return name, value == "true", true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return name, value, false
	}
	return name, n, true
}

// losing are the arguments with which a queue loses what it has, beside those that bound its length.
var losing = map[string]string{
	amqp091.QueueMessageTTLArg: "its letters expire",
	amqp091.QueueTTLArg:        "it is deleted when it is not used",
	deliveryLimit:              "a letter is dropped when it was requeued that often",
	durable:                    "it is gone when the broker starts again",
	autoDelete:                 "it is deleted with its last consumer",
	exclusive:                  "it is deleted with its connection",
}

// drops says with which of its arguments a queue loses letters, and how, or is empty.
func drops(arguments amqp091.Table, major int) string {
	if dropsReturned(arguments, major) {
		return fmt.Sprintf("with %s %s (before RabbitMQ %d a letter is dropped when it is requeued for the first time)",
			deliveryLimit, text(arguments[deliveryLimit]), unlimitedFrom)
	}
	for _, name := range slices.Sorted(maps.Keys(losing)) {
		if value, is := arguments[name]; is && (name != deliveryLimit || text(value) != "-1") {
			return fmt.Sprintf("with %s %s (%s)", name, text(value), losing[name])
		}
	}
	switch arguments[amqp091.QueueOverflowArg] {
	case amqp091.QueueOverflowRejectPublish, amqp091.QueueOverflowRejectPublishDLX: // a full queue says so
		return ""
	}
	for _, name := range []string{amqp091.QueueMaxLenArg, amqp091.QueueMaxLenBytesArg} {
		if value, is := arguments[name]; is && value == unseen {
			return fmt.Sprintf("with %s, and with an x-overflow that the broker's answer does not show (the name of the queue "+
				"is too long)", name)
		} else if is {
			return fmt.Sprintf("with %s %s and without x-overflow=%s (its oldest letters are dropped)", name,
				text(value),
				amqp091.QueueOverflowRejectPublish)
		}
	}
	return ""
}
