package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/rabbitmq/amqp091-go"
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
	conn, err := p.conn.open()
	if err != nil {
		return err
	}
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
	if refusal := declare(conn, queue, wanted); refusal != nil {
		if err := p.takeExisting(conn, queue, wanted, refusal); err != nil {
			return err
		}
	}
	if exchange == "" {
		return nil
	}
	return onChannel(conn, func(c *amqp091.Channel) error {
		if err := p.config.AMQP.TopologyBuilder.ExchangeDeclare(c, exchange, p.config.AMQP); err != nil {
			return fmt.Errorf("wmamqp: declare exchange %q of topic %q: %w", exchange, topic, err)
		}
		key := p.config.AMQP.Publish.GenerateRoutingKey(topic)
		if bind := p.config.AMQP.QueueBind.GenerateRoutingKey; bind != nil {
			key = bind(queue)
		}
		if err := c.QueueBind(queue, key, exchange, false, p.config.AMQP.QueueBind.Arguments); err != nil {
			return fmt.Errorf("wmamqp: bind queue %q to exchange %q: %w", queue, exchange, err)
		}
		return nil
	})
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
