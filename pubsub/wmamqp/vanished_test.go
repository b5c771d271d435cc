package wmamqp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// vanish takes the consumers of a quorum queue away within the broker, as a cluster does that was cut: their channels
// stay open.
func vanish(t *testing.T, queue string) {
	t.Helper()
	services.RabbitMQCtl(t, "eval", fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)),
[ra:process_command(amqqueue:get_pid(Q), rabbit_fifo:make_checkout({element(2, C), element(1, C)}, cancel, #{}))
 || C <- rabbit_amqqueue:consumers(Q)].`, queue))
}

// A queue whose consumers the broker has lost, and said nothing, is consumed again: nothing stands still for ever.
// The messages come in lanes too.
func TestConsumersVanish(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wmamqp.SubscriberConfig){
		"one at a time": func(*wmamqp.SubscriberConfig) {},
		"in flight":     inFlight(3),
		"lanes": func(c *wmamqp.SubscriberConfig) {
			c.InFlight, c.Key = 3, func(msg *message.Message) string { return msg.UUID }
			c.AMQP.Queue.Arguments = amqp091.Table{amqp091.SingleActiveConsumerArg: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			logger, queue := &testkit.Log{}, b.topic()
			messages := b.subscribe(b.subscriber(change, func(c *wmamqp.SubscriberConfig) {
				c.AMQP.Queue.Arguments = wmamqp.QuorumQueue(c.AMQP.Queue.Arguments)
				c.Logger, *wmamqp.ConsumersLook(c) = logger, 200*time.Millisecond
			}), queue)
			b.send(queue, amqp091.Publishing{Body: []byte("m")})
			b.next(messages).Ack()
			vanish(t, queue)
			b.send(queue, amqp091.Publishing{Body: []byte("m")})
			b.next(messages).Ack()
			n := len(logger.Lines(watermill.ErrorLogLevel, "The broker has no consumer of the queue"))
			testkit.Check(t, n == 1, "%d lines", n)
		})
	}
}
