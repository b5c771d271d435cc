package wmamqp

import (
	"reflect"
	"testing"

	"github.com/rabbitmq/amqp091-go"
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
		if got := (&Publisher{config: config}).queueArguments(server); !reflect.DeepEqual(got, row.want) {
			t.Errorf("%v on %q: %v", row.given, row.version, got)
		}
	}
}
