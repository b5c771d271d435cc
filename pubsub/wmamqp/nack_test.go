package wmamqp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// full declares a queue that nacks, and returns what makes room in it.
func (b *broker) full(name, kind string) (room func()) {
	b.Helper()
	arguments := amqp091.Table{amqp091.QueueTypeArg: kind, amqp091.QueueMaxLenArg: 3, "x-overflow": "reject-publish"}
	filled := 0
	b.must(func(c *amqp091.Channel) error {
		if _, err := c.QueueDeclare(name, true, false, false, false, arguments); err != nil {
			return err
		}
		if err := c.Confirm(false); err != nil {
			return err
		}
		for nacks := 0; nacks < 3; { // a quorum queue nacks a little late
			confirm, err := c.PublishWithDeferredConfirm("", name, true, false, amqp091.Publishing{MessageId: "filler"})
			if err != nil {
				return err
			}
			if confirm.Wait() {
				filled++
			} else {
				nacks++
			}
		}
		return nil
	})
	return func() {
		for range filled {
			b.get(name)
		}
	}
}

// Feature D15, promises P1, P3, decision 21: an output queue nacks within milliseconds, and goes on to. That is a word
// of the broker about itself: the sources are held, and no healthy message is dead-lettered.
func TestOutputQueueNacks(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.queue(kind)
			ids, logger, outputs := b.numbered(topic, 6), &testkit.Log{}, topic+".other"
			makeRoom := b.full(outputs, kind)
			dlc, err := spillway.New(t.Context(), spillway.Config{
				Publisher: b.publisher(), Queue: poison.QueueConfig{Origin: wmamqp.Origin}, Logger: logger,
			})
			if err != nil {
				t.Fatal(err)
			}
			testkit.RunRouter(t, logger, func(router *message.Router) {
				dlc.Attach(router)
				router.AddHandler("billing", topic, b.subscriber(prefetch(6)), outputs, b.publisher(),
					func(msg *message.Message) ([]*message.Message, error) {
						return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, nil
					})
			})
			eventually(t, "the outage of the output queue is in the log, or a letter is", func() bool {
				said := fmt.Sprint(logger.Errors())
				return strings.Contains(said, "An outage began") || strings.Contains(said, "dead-lettered")
			})
			makeRoom()
			made := make(map[string]bool)
			eventually(t, "each source has its output, or is a letter", func() bool {
				b.must(func(c *amqp091.Channel) error {
					d, ok, err := c.Get(outputs, true)
					if ok {
						made[string(d.Body)] = true
					}
					return err
				})
				return len(made)+b.ready(topic+".dlq") >= len(ids)
			})
			if n := b.ready(topic + ".dlq"); n != 0 || len(made) != len(ids) {
				said := fmt.Sprint(logger.Errors())
				t.Errorf("%d letters of healthy messages, %d of %d outputs:\n%s", n, len(made), len(ids), said)
			}
			eventually(t, "the source is empty", func() bool { return b.ready(topic) == 0 })
		})
	}
}
