package wmamqp_test

import (
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Feature D5, promise P1, decision 14: a queue that confirms letters and loses them later is refused at start-up,
// whatever else it has; the error names the queue, the argument and what to do. AllowLossyTopics takes it. One that
// only looks different is taken.
func TestInitializeRefusesLossyQueues(t *testing.T) {
	t.Parallel()
	type table = amqp091.Table
	const quorum, classic, stream = "quorum", "classic", "stream"
	for name, row := range map[string]struct {
		arguments table
		transient bool
		says      string // empty: it is taken
		long      bool
	}{
		"length":         {arguments: table{"x-max-length": 3}, says: "x-max-length 3"},
		"length, quorum": {arguments: table{"x-queue-type": quorum, "x-max-length": int64(3)}, says: "x-max-length 3"},
		"expiry":         {arguments: table{"x-message-ttl": 600000}, says: "x-message-ttl 600000"},
		"expiry, quorum": {arguments: table{"x-queue-type": quorum, "x-message-ttl": 600000}, says: "x-message-ttl 600000"},
		"unused":         {arguments: table{"x-expires": 600000}, says: "x-expires 600000"},
		"delivery limit": {arguments: table{"x-queue-type": quorum, "x-delivery-limit": 4, "x-max-in-memory-length": 5}, says: "x-delivery-limit 4"},
		"age":            {arguments: table{"x-queue-type": stream, "x-max-age": "1h"}, says: "x-max-age 1h"},
		"behind others":  {arguments: table{"x-queue-type": classic, "x-max-length": 3, "x-overflow": "reject-publish", "x-dead-letter-exchange": "a'b", "x-queue-mode": "lazy", "x-message-ttl": 7}, says: "x-message-ttl 7"},
		"transient":      {transient: true, says: "durable false"},
		"long name":      {arguments: table{"x-max-length": 3}, says: "x-max-length", long: true},
		"rejects":        {arguments: table{"x-max-length": 3, "x-overflow": "reject-publish", "x-single-active-consumer": true}},
		"routes on":      {arguments: table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "' but current is none", "x-max-priority": 3}},
		"another type":   {arguments: table{"x-queue-mode": "lazy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			suffix := ""
			if row.long {
				suffix = strings.Repeat("n", 180)
			}
			queue := b.topic(suffix) + suffix
			declare := func(c *amqp091.Channel) error {
				_, err := c.QueueDeclare(queue, !row.transient, false, false, false, row.arguments)
				return err
			}
			b.must(declare)
			err := b.publisher().InitializeTopics(queue)
			testkit.Require(t, row.says != "" || err == nil, "%v", err)
			if row.says != "" {
				says(t, err, queue, row.says, "delete it", "AllowLossyTopics")
			}
			if err := b.publisher(func(c *wmamqp.PublisherConfig) { c.AllowLossyTopics = true }).InitializeTopics(queue); err != nil {
				t.Errorf("allowed: %v", err)
			}
			b.must(declare) // asking has changed nothing
		})
	}
}
