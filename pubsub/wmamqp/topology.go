package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// InitializeTopics makes sure that there is a queue for each topic, and that the exchange of its topic is bound to it:
// a durable queue without expiry or bounds. A queue that is there with other arguments is taken as it is, if it keeps
// what it confirms. It is refused if it has x-message-ttl, x-expires or x-delivery-limit, if it has
// x-max-length or x-max-length-bytes without an x-overflow of reject-publish, and if it is not durable or deletes
// itself; so are such arguments in AMQP.Queue.Arguments. The error names the queue, the argument and what to do.
// AllowLossyTopics accepts all.
//
// The broker shows no client what a policy adds to a queue, nor a user without the right to declare it its arguments.
func (p *Publisher) InitializeTopics(topics ...string) error {
	return p.conn.declares(func(conn *amqp091.Connection) error { return p.initialize(conn, topics) })
}

func (p *Publisher) initialize(conn *amqp091.Connection, topics []string) error {
	if dropping := drops(p.config.AMQP.Queue.Arguments, majorVersion(conn.Properties)); dropping != "" &&
		!p.config.AllowLossyTopics {
		return fmt.Errorf("wmamqp: PublisherConfig.AMQP.Queue.Arguments: a queue %s loses letters that it confirmed: "+
			"remove it, or set AllowLossyTopics", dropping)
	}
	for _, topic := range topics {
		if err := p.declareQueue(conn, topic); err != nil {
			return err
		}
	}
	return nil
}

// undrained is why a stream takes no letters.
const undrained = "a drain takes no letter out of it"

func (p *Publisher) declareQueue(conn *amqp091.Connection, topic string) error {
	queue := p.config.AMQP.Queue.GenerateName(topic)
	exchange := p.config.AMQP.Exchange.GenerateName(topic)
	if key := p.config.AMQP.Publish.GenerateRoutingKey(topic); exchange == "" && key != queue {
		return fmt.Errorf("wmamqp: topic %q has queue %q, but the default exchange routes it to queue %q: make "+
			"Publish.GenerateRoutingKey and Queue.GenerateName agree", topic, queue, key)
	}
	if queue == "" || len(queue) > maxShort {
		return fmt.Errorf("wmamqp: topic %.40q: a queue name of %d bytes: AMQP takes 1 to %d", topic, len(queue),
			maxShort)
	}
	wanted := p.queueArguments(conn)
	if wanted[amqp091.QueueTypeArg] == amqp091.QueueTypeStream {
		return streamRefused(queue, undrained)
	}
	// it is there with other arguments, or may not be declared by this user
	if refusal := declare(conn, queue, wanted); refused(refusal, amqp091.InternalError) {
		return fmt.Errorf("wmamqp: declare queue %q: RabbitMQ failed: see its log, and that enough of its nodes run and "+
			"answer: %w", queue, refusal)
	} else if refusal != nil {
		if err := p.takeExisting(conn, queue, wanted, refusal); err != nil {
			return err
		}
	}
	return onChannel(conn, func(c *amqp091.Channel) error {
		key := p.config.AMQP.Publish.GenerateRoutingKey(topic)
		if of := p.config.AMQP.QueueBind.GenerateRoutingKey; of != nil {
			key = of(queue)
		}
		return bind(c, &p.config.AMQP, exchange, queue, key)
	})
}

// bind declares an exchange and binds the queue to it. Every queue is bound to the default exchange.
func bind(c *amqp091.Channel, config *amqp.Config, exchange, queue, key string) error {
	if exchange == "" {
		return nil
	}
	if err := config.TopologyBuilder.ExchangeDeclare(c, exchange, *config); err != nil {
		return fmt.Errorf("wmamqp: declare exchange %q: %w", exchange, err)
	}
	if err := c.QueueBind(queue, key, exchange, config.QueueBind.NoWait, config.QueueBind.Arguments); err != nil {
		return fmt.Errorf("wmamqp: bind queue %q to exchange %q: %w", queue, exchange, err)
	}
	return nil
}

// queueArguments are those of the config, with the type of the queue. From RabbitMQ 4 on a quorum queue drops a message
// that was requeued 20 times, so the limit is lifted where the broker knows how: before, there is none, and -1 drops
// what is requeued.
func (p *Publisher) queueArguments(conn *amqp091.Connection) amqp091.Table {
	arguments := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
	maps.Copy(arguments, p.config.AMQP.Queue.Arguments)
	_, limited := arguments[deliveryLimit]
	if arguments[amqp091.QueueTypeArg] == amqp091.QueueTypeQuorum && !limited &&
		majorVersion(conn.Properties) >= unlimitedFrom {
		arguments[deliveryLimit] = int32(-1)
	}
	return arguments
}

// onChannel runs f on a channel of its own: the broker answers what it refuses by closing the channel.
func onChannel(conn *amqp091.Connection, f func(*amqp091.Channel) error) error {
	c, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("wmamqp: open a channel: %w", err)
	}
	return errors.Join(f(c), c.Close())
}

// backlog asks how many messages are ready in the queue. The client waits for the answer without a limit, so ctx ends
// the wait and the connection the question.
func backlog(ctx context.Context, conn *amqp091.Connection, queue string) (int, error) {
	type answer struct {
		n   int
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		var n int
		err := onChannel(conn, func(c *amqp091.Channel) error {
			q, err := c.QueueDeclarePassive(queue, true, false, false, false, nil)
			n = q.Messages
			return err
		})
		answers <- answer{n, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return 0, fmt.Errorf("wmamqp: backlog of queue %q: %w", queue, a.err)
		}
		return a.n, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wmamqp: backlog of queue %q: %w", queue, ctx.Err())
	}
}

const deliveryLimit = "x-delivery-limit"

// unlimitedFrom is the version of RabbitMQ from which x-delivery-limit -1 means no limit. Earlier ones accept -1, and
// drop a message when it is requeued for the first time, or send it to a dead-letter exchange. Without the argument
// they have no limit.
const unlimitedFrom = 4

// version is that of the broker; 0.0 if it does not say.
type version struct{ major, minor int }

func versionOf(server amqp091.Table) (v version) {
	text, _ := server["version"].(string)
	_, _ = fmt.Sscanf(text, "%d.%d", &v.major, &v.minor)
	return v
}

func (v version) atLeast(major, minor int) bool {
	return v.major > major || v.major == major && v.minor >= minor
}

func majorVersion(server amqp091.Table) int { return versionOf(server).major }

// dropsReturned reports whether a queue with the arguments drops what is requeued for the first time. An unknown
// version is a new one.
func dropsReturned(arguments amqp091.Table, major int) bool {
	limit, is := arguments[deliveryLimit]
	return is && strings.HasPrefix(text(limit), "-") && major > 0 && major < unlimitedFrom
}

// checkSource refuses arguments of a source queue with which the broker drops what is requeued for the first time.
func checkSource(queue string, arguments amqp091.Table, major int) error {
	if !dropsReturned(arguments, major) {
		return nil
	}
	return fmt.Errorf("wmamqp: queue %q with %s %s: RabbitMQ %d drops a message when it is requeued for the first "+
		"time: leave the argument out of SubscriberConfig.AMQP.Queue.Arguments, which means no limit before RabbitMQ %d, "+
		"and delete the queue if it has it", queue, deliveryLimit, text(arguments[deliveryLimit]), major, unlimitedFrom)
}

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
		eventQueueDiffers.Write(p.config.Logger, nil, fields)
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
	eventQueueUnknown.Write(p.config.Logger, nil, fields)
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
