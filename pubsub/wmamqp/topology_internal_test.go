package wmamqp

import (
	"reflect"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Promise P1: from RabbitMQ 4 on, where a quorum queue drops what was requeued 20 times, the limit is lifted; before,
// where -1 drops messages, and on classic queues it is not mentioned.
func TestDeliveryLimit(t *testing.T) {
	for _, row := range []struct {
		version     string
		given, want amqp091.Table
	}{
		{"4.1.0", nil, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(-1)}},
		{"3.10.8", nil, amqp091.Table{"x-queue-type": "quorum"}},
		{"", nil, amqp091.Table{"x-queue-type": "quorum"}},
		{"4.1.0", amqp091.Table{"x-queue-type": "classic"}, amqp091.Table{"x-queue-type": "classic"}},
	} {
		config := PublisherConfig{}
		config.AMQP.Queue.Arguments = row.given
		server := &amqp091.Connection{Properties: amqp091.Table{"version": row.version}}
		got := (&Publisher{config: config}).queueArguments(server)
		testkit.Check(t, reflect.DeepEqual(got, row.want), "%v on %q: %v", row.given, row.version, got)
	}
}

// Feature R15: from RabbitMQ 4 on a quorum queue without a limit of -1 drops messages out of their order, and is refused.
func TestKeyOfLimitedQueue(t *testing.T) {
	quorum := amqp091.Table{"x-queue-type": "quorum"}
	for _, row := range []struct {
		what      string
		keyed     bool
		arguments amqp091.Table
		major     int
		refused   bool
	}{
		{"no limit is set", true, quorum, 4, true},
		{"the limit is lifted", true, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": -1}, 4, false},
		{"a classic queue has none", true, nil, 4, false},
		{"earlier brokers have none", true, quorum, 3, false},
		{"no order is asked for", false, quorum, 4, false},
	} {
		config := SubscriberConfig{}
		if row.keyed {
			config.Key = func(*message.Message) string { return "" }
		}
		err := config.checkLimit(row.arguments, row.major)
		testkit.Check(t, (err != nil) == row.refused, "%s: %v", row.what, err)
	}
}
