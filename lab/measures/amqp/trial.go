package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// patience is how long a trial may take.
const patience = 3 * time.Minute

var errPermanent = classify.Permanent(errors.New("no such order"))

// trial is a run over a full queue of its own, of whose messages some are dead-lettered.
type trial struct {
	ctx        context.Context
	kind       string
	n, percent int
	prefetch   int
	maxPlacing int
}

// run returns how many good messages a second were handled.
func (t trial) run() (perSecond float64, err error) {
	uri, err := services.Lookup("rabbitmq")
	if err != nil {
		return 0, err
	}
	conn, err := amqp091.Dial(uri)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	channel, err := conn.Channel()
	if err != nil {
		return 0, err
	}
	topic := "bench-" + watermill.NewShortUUID()
	for _, queue := range []string{topic, topic + ".dlq"} {
		arguments := amqp091.Table{amqp091.QueueTypeArg: t.kind}
		if _, err := channel.QueueDeclare(queue, true, false, false, false, arguments); err != nil {
			return 0, err
		}
		defer func() {
			_, failed := channel.QueueDelete(queue, false, false, false)
			err = errors.Join(err, failed)
		}()
	}
	if err := t.fill(channel, topic); err != nil {
		return 0, err
	}
	return t.consume(uri, topic)
}

// fill publishes the messages, and waits for their confirms.
func (t trial) fill(channel *amqp091.Channel, topic string) error {
	if err := channel.Confirm(false); err != nil {
		return err
	}
	confirms := make([]*amqp091.DeferredConfirmation, t.n)
	for i := range confirms {
		publishing, err := wmamqp.Marshaler{}.Marshal(harness.Numbered(i))
		if err != nil {
			return err
		}
		if confirms[i], err = channel.PublishWithDeferredConfirm("", topic, true, false, publishing); err != nil {
			return err
		}
	}
	for _, confirm := range confirms {
		if acked, err := confirm.WaitContext(t.ctx); err != nil || !acked {
			return errors.Join(errors.New("a message was not confirmed"), err)
		}
	}
	return nil
}

func (t trial) consume(uri, topic string) (perSecond float64, err error) {
	config := wmamqp.SubscriberConfig{MaxPlacing: t.maxPlacing}
	config.AMQP.Consume.Qos.PrefetchCount = t.prefetch
	sub, err := wmamqp.NewSubscriber(uri, config)
	if err != nil {
		return 0, err
	}
	pub, err := wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{})
	if err != nil {
		return 0, errors.Join(err, sub.Close())
	}
	defer func() { _ = pub.Close() }() // the rest may end by itself
	counted := harness.NewTrial(t.n, t.percent)
	dlc, err := spillway.New(t.ctx, spillway.Config{
		Publisher: pub, Queue: poison.QueueConfig{Origin: wmamqp.Origin,
			Hooks: poison.Hooks{OnDeadLetter: counted.Letter}},
	})
	if err != nil {
		return 0, errors.Join(err, sub.Close())
	}
	err = harness.Route(t.ctx, func(router *message.Router) error {
		counted.Ready = router.Running()
		dlc.Attach(router)
		router.AddConsumerHandler("bench", topic, sub, func(msg *message.Message) error {
			if counted.Handle(msg) != nil {
				return errPermanent
			}
			return nil
		})
		return nil
	}, counted.Begins, counted.Done, patience)
	return counted.Live(), errors.Join(err, counted.Finished(1))
}
