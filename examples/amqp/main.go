// Command amqp runs real GitHub events through a consumer that Spillway protects, on RabbitMQ and PostgreSQL (or
// SQLite, where there is none). The consumer is a process of its own, which is killed in the middle of its work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

func main() {
	queueType := flag.String("queue", amqp091.QueueTypeQuorum, "type of the queues: quorum or classic")
	crash.Main("amqp", consume, func(ctx context.Context, plan *crash.Plan) (webhooks.Result, error) {
		return run(ctx, plan, *queueType)
	})
}

func run(ctx context.Context, plan *crash.Plan, queueType string) (result webhooks.Result, err error) {
	if queueType != amqp091.QueueTypeQuorum && queueType != amqp091.QueueTypeClassic {
		return result, fmt.Errorf("-queue %q: give quorum or classic", queueType)
	}
	if err := plan.Ready(); err != nil {
		return result, err
	}
	if plan.Brokers, err = services.Lookup("rabbitmq"); err != nil {
		return result, err
	}
	cleanUp, err := declareQueues(&plan.Setting, queueType)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	live, err := wmamqp.NewPublisher(plan.Brokers, wmamqp.PublisherConfig{})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, live.Close()) }()
	reader, err := subscriber(plan.Brokers)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	summaries, err := reader.Subscribe(ctx, plan.Summaries())
	if err != nil {
		return result, err
	}
	return crash.Tell(ctx, plan, crash.Broker{
		Live: live, Summaries: summaries, Backlog: backlogOf(reader, &plan.Setting),
		Holders: consumersOf(&plan.Setting),
	})
}

// backlogOf counts what no consumer holds in the queues of the consumer: the topic's first, as a letter is published
// before its delivery is acked.
func backlogOf(reader *wmamqp.Subscriber, s *crash.Setting) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		sum := 0
		for _, topic := range append([]string{s.Topic}, s.DeadLetters()...) {
			n, err := reader.Backlog(ctx, topic)
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}
}

// consumersOf counts the consumers of these queues: RabbitMQ does not say over AMQP what they hold.
func consumersOf(s *crash.Setting) func(context.Context) (int, error) {
	return func(context.Context) (sum int, err error) {
		err = onChannel(s.Brokers, func(channel *amqp091.Channel) error {
			for _, name := range append(s.DeadLetters(), s.Topic) {
				queue, err := channel.QueueDeclarePassive(name, true, false, false, false, nil)
				if err != nil {
					return fmt.Errorf("look at queue %s: %w", name, err)
				}
				sum += queue.Consumers
			}
			return nil
		})
		return sum, err
	}
}

// declareQueues makes what a service has from the operators of its RabbitMQ: its queues. Those of dead letters the
// channel declares itself, but the demo must not ask for their backlog before. cleanUp removes all of them.
func declareQueues(s *crash.Setting, queueType string) (cleanUp func() error, err error) {
	cleanUp = func() error {
		return onChannel(s.Brokers, func(channel *amqp091.Channel) (failed error) {
			for _, name := range s.Topics() {
				// of one that is not there it is none
				if _, err := channel.QueueDelete(name, false, false, false); err != nil {
					failed = errors.Join(failed, fmt.Errorf("delete queue %s: %w", name, err))
				}
			}
			return failed
		})
	}
	err = onChannel(s.Brokers, func(channel *amqp091.Channel) error {
		for _, name := range append(s.DeadLetters(), s.Topic, s.Summaries()) {
			if _, err := channel.QueueDeclare(name, true, false, false, false,
				amqp091.Table{amqp091.QueueTypeArg: queueType}); err != nil {
				return errors.Join(fmt.Errorf("declare queue %s: %w", name, err), cleanUp())
			}
		}
		return nil
	})
	return cleanUp, err
}

// onChannel works on a connection of its own, so that nothing is left open between the questions.
func onChannel(uri string, work func(*amqp091.Channel) error) (err error) {
	if _, err := amqp091.ParseURI(uri); err != nil { // the error would show the password
		return errors.New("the address of RabbitMQ is no AMQP URL: let SPILLWAY_AMQP be amqp://user:password@host:port/")
	}
	conn, err := amqp091.Dial(uri)
	if err != nil {
		return fmt.Errorf("connect to RabbitMQ: start it with \"make services\", or correct SPILLWAY_AMQP: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	return work(channel)
}
